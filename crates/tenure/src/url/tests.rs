//! Every spelling, and every mistake.

use super::*;
use crate::error::ErrorKind;

fn redis(url: &str) -> RedisTarget {
    match Target::parse(url).unwrap() {
        Target::Redis(target) => target,
        other => panic!("`{url}` is {other:?}"),
    }
}

fn sentinel(url: &str) -> SentinelTarget {
    match Target::parse(url).unwrap() {
        Target::Sentinel(target) => target,
        other => panic!("`{url}` is {other:?}"),
    }
}

fn cluster(url: &str) -> ClusterTarget {
    match Target::parse(url).unwrap() {
        Target::Cluster(target) => target,
        other => panic!("`{url}` is {other:?}"),
    }
}

fn addresses(targets: &[RedisTarget]) -> Vec<String> {
    let address = |target: &RedisTarget| target.address.to_string();
    targets.iter().map(address).collect()
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp {
        host: host.to_owned(),
        port,
    }
}

#[track_caller]
fn refused(url: &str, cause: &str) {
    let error = Target::parse(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl);
    assert!(error.to_string().contains(cause), "{error}");
}

#[test]
fn every_way_to_name_one_server_is_understood() {
    assert_eq!(redis("redis://h").address, tcp("h", 6379));
    assert_eq!(redis("h").address, tcp("h", 6379));
    assert_eq!(redis("h:7000").address, tcp("h", 7000));
    assert_eq!(redis("valkey://[::1]:7000/").address, tcp("::1", 7000));
    assert_eq!(redis("redis://h/3").database, 3);
    assert_eq!(redis("redis://h?db=4").database, 4);
    assert_eq!(redis("redis://h").layout(), Layout::Native);
    let java = redis("redis://h?layout=redisson");
    assert_eq!(java.layout(), Layout::Redisson);
    let prefixed = redis("redis://h?prefix=team-a%3A");
    assert_eq!(prefixed.prefix, Some(Prefix::parse("team-a:").unwrap()));
    let socket = redis("unix:///run/redis.sock?db=2&user=u&pass=p%40ss");
    assert_eq!(socket.address, Address::Unix("/run/redis.sock".into()));
    assert_eq!(socket.password.as_ref().map(Secret::reveal), Some("p@ss"));
    assert_eq!(socket.database, 2);
}

#[test]
fn credentials_are_read_as_redis_registered_them() {
    let target = redis("redis://alice:p%40ss%2Fword@h:1/");
    assert_eq!(target.user.as_deref(), Some("alice"));
    assert_eq!(
        target.password.as_ref().map(Secret::reveal),
        Some("p@ss/word")
    );
    assert_eq!(redis("redis://:pw@h").user, None);
    let only_user = redis("redis://someone@h");
    assert_eq!(only_user.user.as_deref(), Some("someone"));
    assert_eq!(only_user.password, None);
}

#[test]
fn tls_takes_its_files_from_the_query() {
    let target = redis("rediss://h/?ca=/ca.pem&cert=/c.pem&key=/k.pem#insecure");
    let Address::Tls { tls, .. } = target.address else {
        panic!("not TLS")
    };
    assert_eq!(tls.ca, Some("/ca.pem".into()));
    assert_eq!(tls.key, Some("/k.pem".into()));
    assert!(tls.insecure);
}

#[test]
fn what_is_wrong_is_named() {
    refused("", "it is empty");
    refused("http://h", "the scheme `http`");
    refused("redis-ring://h", "the scheme `redis-ring`");
    refused("memory-cluster://h", "the scheme `memory-cluster`");
    refused("redis://", "the host is missing");
    // Perhaps it is a user and a password, and the host was forgotten.
    refused("redis://h:port", "the port `***`");
    refused("redis://h:0", "the port `0`");
    refused("redis://h:70000", "the port `70000`");
    refused("redis://::1", "in brackets");
    refused("redis://[::1", "closing bracket");
    refused("redis://a,b", "is a list");
    refused("redis://h/zero", "the database `zero`");
    refused("redis://h/-1", "the database `-1`");
    refused("redis://h?colour=red", "the parameter `colour`");
    refused("redis://h?ca=/x", "needs TLS");
    refused("redis://h?db=1&db=2", "is given twice");
    refused("rediss://h?cert=/x", "give both");
    refused("redis://h?layout=java", "the layout `java` is not");
    refused("memory://?layout=redisson", "the parameter `layout`");
    refused(
        "redis://h?prefix=a%7Bb%7D",
        "the prefix `a{b}` cannot be used",
    );
    refused("redis-cluster://h?prefix=a%20b", "a space");
    refused("redis://h#insecure", "belongs to `rediss://`");
    refused("unix://relative", "is not absolute");
    refused("memory://a/b", "is not the name of a memory store");
    refused("redis://u:%zz@h", "the password has a `%`");
}

#[test]
fn no_password_is_ever_printed() {
    for url in [
        "redis://u:hunter2@h:port",
        "redis://u:hun@ter2@h:port",
        "redis://:hunter2@h/zero",
        "u:hunter2@h:port",
        "unix://x?pass=hunter2",
        "redis://h?password=hunter2",
        "redis-sentinel://h:port/m?sentinel_password=hunter2",
        "redis-sentinel://h:port/m?sentinelPassword=hunter2",
        "redis-sentinel://u:hunter2@a,b/m/zero?sentinel_pass=hunter2",
        "redis-cluster://u:hunter2@a,b/1",
    ] {
        let error = Target::parse(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("ter2"), "{error}");
    }
    let target = redis("redis://u:hunter2@h");
    assert!(!format!("{target} {target:?}").contains("hunter2"));
    let target = sentinel("redis-sentinel://u:hunter2@h/m?sentinel_password=hunter2");
    assert!(!format!("{target} {target:?}").contains("hunter2"));
    let target = cluster("redis-cluster://u:hunter2@h");
    assert!(!format!("{target} {target:?}").contains("hunter2"));
    let masked = masked_url("redis-sentinel://h/m?sentinelPassword=hunter2&db=1");
    assert_eq!(masked, "redis-sentinel://h/m?sentinelPassword=***&db=1");
    for forgotten in [
        "redis://user:hunter2",
        "redis://user:hunter2/0",
        "redis://:hunter2",
        "redis://h1:1,user:hunter2/m?db=1",
        "redis://user:hun/ter2?hunter2",
        "user:hunter2",
        "redis://[::1]:hunter2",
    ] {
        let masked = masked_url(forgotten);
        assert!(
            masked.ends_with("***") && !masked.contains("ter2"),
            "{masked}"
        );
    }
    for plain in [
        "redis://h:1/0",
        "h:1",
        "redis://[::1]:1",
        "redis-cluster://a:1,b:2",
        "redis://h:",
        "unix:///a:b",
    ] {
        assert_eq!(masked_url(plain), plain);
    }
}

#[test]
fn every_way_to_name_sentinels_is_understood() {
    for (url, master, database) in [
        ("redis-sentinel://a,b:7,[::1]:8/m", "m", 0),
        ("redis+sentinel://a,b:7,[::1]:8/m/", "m", 0),
        ("valkey-sentinel://a,b:7,[::1]:8/m/3", "m", 3),
        ("redis-sentinel://a,b:7,[::1]:8/m?db=3", "m", 3),
        ("redis-sentinel://a,b:7,[::1]:8/3?master=m", "m", 3),
        ("redis-sentinel://a,b:7,[::1]:8?master=m", "m", 0),
        (
            "redis-sentinel://a,b:7,[::1]:8/?sentinelMasterId=m%2F1&db=2",
            "m/1",
            2,
        ),
        (
            "redis+sentinel://a,b:7,[::1]:8?sentinelServiceName=m",
            "m",
            0,
        ),
        ("redis+sentinel://a,b:7,[::1]:8/my%20master", "my master", 0),
    ] {
        let target = sentinel(url);
        assert_eq!(addresses(&target.sentinels), ["a:26379", "b:7", "[::1]:8"]);
        assert_eq!(target.master, master, "{url}");
        assert_eq!(target.server.database, database, "{url}");
        assert!(
            target
                .sentinels
                .iter()
                .all(|sentinel| sentinel.database == 0)
        );
    }
}

#[test]
fn sentinels_have_users_and_passwords_of_their_own() {
    let password = |target: &RedisTarget| target.password.as_ref().map(|it| it.reveal().to_owned());
    for url in [
        "redis-sentinel://u:p@a,b/m?sentinel_user=su&sentinel_pass=sp",
        "redis-sentinel://a,b/m?user=u&pass=p&sentinel_username=su&sentinel_password=sp",
        "redis+sentinel://u:p@a,b/m?sentinelUsername=su&sentinelPassword=sp",
    ] {
        let target = sentinel(url);
        assert_eq!(target.server.user.as_deref(), Some("u"));
        assert_eq!(password(&target.server).as_deref(), Some("p"));
        for sentinel in &target.sentinels {
            assert_eq!(sentinel.user.as_deref(), Some("su"));
            assert_eq!(password(sentinel).as_deref(), Some("sp"));
        }
    }
    let plain = sentinel("redis-sentinel://u:p@a/m");
    assert_eq!(plain.sentinels[0].user, None);
    assert_eq!(plain.sentinels[0].password, None);
}

#[test]
fn tls_and_layout_hold_for_sentinels_and_servers() {
    for url in [
        "rediss-sentinel://a/m?ca=/ca.pem&layout=redisson",
        "rediss+sentinel://a/m?ca=/ca.pem&layout=redisson",
        "valkeys-sentinel://a/m?ca=/ca.pem&layout=redisson",
    ] {
        let target = sentinel(url);
        assert_eq!(target.server.layout(), Layout::Redisson);
        let server = target.server.at("10.0.0.1", 7000);
        assert_eq!(server.to_string(), "rediss://10.0.0.1:7000/");
        for one in target.sentinels.iter().chain([&server]) {
            let Address::Tls { tls, .. } = &one.address else {
                panic!("not TLS")
            };
            assert_eq!(tls.ca, Some("/ca.pem".into()));
        }
        assert_eq!(target.to_string(), "rediss-sentinel://a:26379/m");
    }
    let shown = sentinel("redis+sentinel://u:p@a,[::1]:7/m/2").to_string();
    assert_eq!(shown, "redis-sentinel://a:26379,[::1]:7/m/2");
}

#[test]
fn every_way_to_name_a_cluster_is_understood() {
    for url in [
        "redis-cluster://u:p@a,b:7001,[::1]:7002",
        "redis+cluster://u:p@a,b:7001,[::1]:7002/",
        "valkey-cluster://u:p@a,b:7001,[::1]:7002/0",
        "redis-cluster://u:p@a?node=b:7001&node=[::1]:7002",
        "redis-cluster://u:p@a?addr=b:7001&addr=[::1]:7002",
        "redis-cluster://u:p@?node=a&node=b:7001&node=[::1]:7002&db=0",
    ] {
        let target = cluster(url);
        let expected = ["a:6379", "b:7001", "[::1]:7002"];
        assert_eq!(addresses(&target.nodes), expected, "{url}");
        assert!(
            target
                .nodes
                .iter()
                .all(|node| node.user.as_deref() == Some("u"))
        );
        assert_eq!(target.sharded, None);
        assert_eq!(
            target.to_string(),
            "redis-cluster://a:6379,b:7001,[::1]:7002"
        );
    }
    for (word, sharded) in [
        ("auto", Sharded::Auto),
        ("on", Sharded::On),
        ("off", Sharded::Off),
    ] {
        let target = cluster(&format!("redis-cluster://a?sharded={word}"));
        assert_eq!(target.sharded, Some(sharded));
    }
    for url in ["rediss-cluster://a", "rediss+cluster://a?ca=/ca.pem"] {
        assert_eq!(cluster(url).to_string(), "rediss-cluster://a:6379");
    }
    let layout = cluster("redis-cluster://a,b?layout=redisson").nodes[1].layout();
    assert_eq!(layout, Layout::Redisson);
}

#[test]
fn what_is_wrong_with_sentinels_and_clusters_is_named() {
    refused("redis-sentinel://", "the host is missing");
    refused("redis-sentinel:///m", "the host is missing");
    refused("redis-sentinel://a,,b/m", "the host is missing");
    refused("redis-sentinel://a", "the name of the master is missing");
    refused("redis-sentinel://a/", "the name of the master is missing");
    refused(
        "redis-sentinel://a?master=",
        "the name of the master is empty",
    );
    refused("redis-sentinel://a/m?master=n", "the master is named twice");
    refused(
        "redis-sentinel://a/m?master=m&master=m",
        "the master is named twice",
    );
    refused(
        "redis-sentinel://a?master=m&sentinelMasterId=m",
        "is given twice",
    );
    refused("redis-sentinel://a/m/zero", "the database `zero`");
    refused("redis-sentinel://a:x,b/m", "the port `***`");
    refused("redis-sentinel://::1,b/m", "in brackets");
    refused("redis-sentinel://[::1,b/m", "closing bracket");
    refused(
        "redis-sentinel://a/m?node=b",
        "the parameter `node` is not one of `master`",
    );
    refused("redis-sentinel://a/m?ca=/x", "needs TLS");
    refused(
        "redis://a?sentinel_password=x",
        "the parameter `sentinel_password`",
    );
    refused("redis-cluster://", "the host is missing");
    refused("redis-cluster://a/1", "no database `1`, only 0");
    refused("redis-cluster://a?db=2", "no database `2`, only 0");
    refused("redis-cluster://a/m", "the database `m`");
    refused(
        "redis-cluster://a?sharded=yes",
        "`sharded=yes` is not `auto`, `on` or `off`",
    );
    refused("redis-cluster://a?node=b:x", "the port `x`");
    refused(
        "redis-cluster://a?master=m",
        "the parameter `master` is not one of `node`",
    );
    refused("redis-cluster://a?sharded=on&sharded=on", "is given twice");
}
