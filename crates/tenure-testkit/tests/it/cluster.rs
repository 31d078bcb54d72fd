//! Clusters: slots migrated, uncovered and failed over.

use std::thread;
use std::time::Duration;

use tenure_testkit::{ClockShim, Cluster, FailoverKind, Fsync, RedisServer, RespClient};

use crate::SOON;

/// A failover takes about three seconds.
const FAILOVER_LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_cluster_starts_with_every_slot_served() {
    let cluster = Cluster::start();
    let addrs = cluster.servers().iter().map(|one| one.addr().to_string());
    let addrs: Vec<String> = addrs.collect();
    assert_eq!(addrs.len(), 6);
    assert_eq!(
        cluster.url(),
        format!("redis-cluster://{}", addrs.join(","))
    );
    for key in ["a", "b", "c", "d", "e", "f"] {
        let master = cluster.master_of_key(key);
        let [_, replica] = cluster.shard_of(master)[..] else {
            panic!("two nodes in a shard");
        };
        let mut client = master.client();
        client.command(&["SET", key, "v"]);
        assert_eq!(client.command(&["WAIT", "1", "2000"]).int(), 1);
        let mut client = replica.client();
        client.command(&["READONLY"]);
        assert_eq!(client.command(&["GET", key]).text(), "v");
    }
}

#[test]
fn slots_match_those_of_the_server() {
    let cluster = Cluster::builder().masters(1).replicas(0).start();
    let mut client = cluster.servers()[0].client();
    let tags = [
        "{a}b", "x{a}", "{}a", "a{", "{{a}}", "a}{b}", "{", "{}{a}", "",
    ];
    let numbers = (0..200).map(|number| format!("key:{number}"));
    let keys = tags.iter().map(ToString::to_string).chain(numbers);
    for key in keys {
        let slot = client.command(&["CLUSTER", "KEYSLOT", &key]).int();
        assert_eq!(i64::from(Cluster::slot_of(&key)), slot, "`{key}`");
    }
}

#[test]
fn a_migrating_slot_replies_ask_and_tryagain() {
    let cluster = Cluster::builder()
        .masters(2)
        .replicas(0)
        .password("secret")
        .start();
    let slot = Cluster::slot_of("{t}");
    let source = cluster.master_of_slot(slot);
    let mut servers = cluster.servers().iter();
    let target = servers.find(|one| one.port() != source.port()).unwrap();
    let (mut at_source, mut at_target) = (login(source), login(target));
    at_source.command(&["MSET", "{t}a", "1", "{t}b", "2"]);
    let refused = at_target.try_command(&["GET", "{t}a"]).unwrap_err();
    assert_eq!(refused, format!("MOVED {slot} {}", source.addr()));

    let migration = cluster.begin_migration(slot, target);
    assert!(migration.move_key("{t}a"));
    assert!(!migration.move_key("{t}a"));
    let ask = format!("ASK {slot} {}", target.addr());
    assert_eq!(at_source.try_command(&["GET", "{t}a"]), Err(ask.clone()));
    assert_eq!(at_source.try_command(&["GET", "{t}new"]), Err(ask));
    assert_eq!(at_source.command(&["GET", "{t}b"]).text(), "2");
    let refused = at_target.try_command(&["GET", "{t}a"]).unwrap_err();
    assert!(refused.starts_with("MOVED"), "{refused}");
    at_target.command(&["ASKING"]);
    assert_eq!(at_target.command(&["GET", "{t}a"]).text(), "1");
    let both = ["MGET", "{t}a", "{t}b"];
    let refused = at_source.try_command(&both).unwrap_err();
    assert!(refused.starts_with("TRYAGAIN"), "{refused}");
    at_target.command(&["ASKING"]);
    let refused = at_target.try_command(&both).unwrap_err();
    assert!(refused.starts_with("TRYAGAIN"), "{refused}");

    migration.finish();
    assert_eq!(cluster.master_of_slot(slot).port(), target.port());
    assert_eq!(at_target.command(&both).array().len(), 2);
    let refused = at_source.try_command(&["GET", "{t}b"]).unwrap_err();
    assert_eq!(refused, format!("MOVED {slot} {}", target.addr()));
}

#[test]
fn a_slot_is_migrated_with_all_its_keys() {
    let cluster = Cluster::builder().masters(2).replicas(0).start();
    let slot = Cluster::slot_of("{t}");
    let [target, source] = cluster.servers() else {
        panic!("two nodes");
    };
    assert_eq!(cluster.master_of_slot(slot).port(), source.port());
    let mut client = source.client();
    for number in 0..250 {
        client.command(&["SET", &format!("{{t}}{number}"), "v"]);
    }
    let count = |server: &RedisServer| {
        let words = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
        server.client().command(&words).int()
    };
    let migration = cluster.begin_migration(slot, target);
    assert_eq!(migration.move_keys(), 250);
    migration.finish();
    assert_eq!(count(target), 250);
    cluster.migrate_slot(slot, source);
    assert_eq!(count(source), 250);
    assert!(cluster.wait_until_ok(SOON));
}

/// `MIGRATE` blocks its server until the other server has replied. Two of them in opposite directions
/// would deadlock until they time out.
#[test]
fn keys_move_in_opposite_directions_at_once() {
    const KEYS: usize = 500;
    let cluster = Cluster::builder().masters(2).replicas(0).start();
    let [one, other] = cluster.servers() else {
        panic!("two nodes");
    };
    let keys = |tag: &str| -> Vec<String> {
        let mut client = cluster.master_of_key(tag).client();
        let keys: Vec<String> = (0..KEYS).map(|key| format!("{{{tag}}}{key}")).collect();
        for key in &keys {
            client.command(&["SET", key, &"v".repeat(10_000)]);
        }
        keys
    };
    thread::scope(|scope| {
        for (tag, source, target) in [("b", one, other), ("a", other, one)] {
            let (slot, keys) = (Cluster::slot_of(tag), keys(tag));
            let migration = cluster.begin_migration(slot, target);
            assert_eq!(migration.source().port(), source.port());
            scope.spawn(move || {
                assert!(keys.iter().all(|key| migration.move_key(key)));
                migration.finish();
            });
        }
    });
    assert_eq!(cluster.master_of_key("b").port(), other.port());
    assert_eq!(cluster.master_of_key("a").port(), one.port());
    for server in cluster.servers() {
        let log = server.log();
        assert!(!log.contains("FAIL"), "a node looked dead:\n{log}");
    }
}

#[test]
fn replicas_are_promoted_in_every_way() {
    let cluster = Cluster::start();
    let slot = Cluster::slot_of("k");
    cluster
        .master_of_slot(slot)
        .client()
        .command(&["SET", "k", "v"]);
    for kind in [
        FailoverKind::Orderly,
        FailoverKind::Force,
        FailoverKind::Takeover,
    ] {
        let old = cluster.master_of_slot(slot);
        let new = partner(&cluster, old);
        cluster.failover(new, kind);
        assert_eq!(cluster.master_of_slot(slot).port(), new.port(), "{kind:?}");
        assert_eq!(new.client().command(&["GET", "k"]).text(), "v");
        assert_eq!(old.info("role"), "slave");
    }
}

/// A node that gets no CPU time for a while must not fail the tests that share its cluster.
#[test]
fn a_steady_cluster_waits_for_a_slow_node() {
    let cluster = Cluster::builder().steady().start();
    let slow = cluster.master_of_slot(0);
    slow.pause();
    thread::sleep(Duration::from_secs(4));
    slow.resume();
    assert!(cluster.wait_until_ok(SOON));
    assert_eq!(cluster.master_of_slot(0).port(), slow.port());
    for server in cluster.servers() {
        let log = server.log();
        assert!(!log.contains("FAIL"), "a node looked dead:\n{log}");
    }
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let cluster = Cluster::builder().aof(Fsync::Always).start();
    let slot = Cluster::slot_of("k");
    let mut client = cluster.master_of_slot(slot).client();
    client.command(&["SET", "k", "v"]);
    assert_eq!(client.command(&["WAIT", "1", "2000"]).int(), 1);

    let old = cluster.kill_master_of(slot);
    let new = cluster.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(new.port(), partner(&cluster, old).port());
    assert_eq!(cluster.master_of_slot(slot).port(), new.port());
    assert_eq!(new.client().command(&["GET", "k"]).text(), "v");

    old.restart();
    assert!(cluster.wait_until_ok(FAILOVER_LIMIT));
    assert_eq!(old.info("role"), "slave");
    assert_eq!(cluster.master_of_slot(slot).port(), new.port());

    old.restart_empty();
    let info = old.client().command(&["CLUSTER", "INFO"]);
    assert!(info.text().contains("cluster_known_nodes:1\r\n"));
}

#[test]
fn a_write_that_was_not_replicated_is_lost_by_a_failover() {
    let cluster = Cluster::start();
    let old = cluster.master_of_key("k");
    let replica = partner(&cluster, old);
    cluster.cut_replication(replica);
    old.client().command(&["SET", "k", "v"]);
    cluster.heal_replication(replica);
    assert_eq!(old.client().command(&["WAIT", "1", "2000"]).int(), 1);

    cluster.cut_replication(replica);
    old.client().command(&["SET", "k", "w"]);
    cluster.failover(replica, FailoverKind::Force);
    assert_eq!(replica.client().command(&["GET", "k"]).text(), "v");
}

#[test]
fn an_uncovered_slot_stops_itself_or_the_cluster() {
    let builder = Cluster::builder().masters(2).replicas(0);
    let (partial, whole) = std::thread::scope(|scope| {
        let partial = scope.spawn(|| builder.clone().partial_coverage().start());
        let whole = builder.clone().start();
        (partial.join().unwrap(), whole)
    });
    let (slot, other) = (Cluster::slot_of("a"), Cluster::slot_of("b"));
    assert_ne!(slot, other);

    partial.uncover_slot(slot);
    for server in partial.servers() {
        let refused = server.client().try_command(&["GET", "a"]).unwrap_err();
        assert_eq!(refused, "CLUSTERDOWN Hash slot not served");
    }
    partial
        .master_of_slot(other)
        .client()
        .command(&["GET", "b"]);

    let owner = whole.master_of_slot(slot);
    whole.uncover_slot(slot);
    let mut client = whole.master_of_slot(other).client();
    let refused = client.try_command(&["GET", "b"]).unwrap_err();
    assert_eq!(refused, "CLUSTERDOWN The cluster is down");
    whole.cover_slot(slot, owner);
    assert!(whole.wait_until_ok(FAILOVER_LIMIT));
    client.command(&["GET", "b"]);
}

#[test]
fn one_node_uses_another_clock() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let builder = Cluster::builder().masters(2).replicas(0);
    let cluster = builder.clock(1, clock.clone()).start();
    let ttl_ms = |index: usize| {
        let key = ["b", "a"][index];
        let mut client = cluster.servers()[index].client();
        client.command(&["SET", key, "v", "PX", "30000"]);
        clock.step_forward(Duration::from_secs(10));
        client.command(&["PTTL", key]).int()
    };
    assert!(ttl_ms(0) > 20_000);
    assert!(ttl_ms(1) <= 20_000);
}

#[test]
#[should_panic(expected = "still the master")]
fn a_failover_that_does_not_come_shows_why() {
    let cluster = Cluster::builder().masters(1).replicas(1).start();
    let old = cluster.kill_master_of(0);
    cluster.wait_for_failover(old, Duration::ZERO);
}

fn partner<'a>(cluster: &'a Cluster, server: &RedisServer) -> &'a RedisServer {
    let mut shard = cluster.shard_of(server).into_iter();
    shard.find(|one| one.port() != server.port()).unwrap()
}

fn login(server: &RedisServer) -> RespClient {
    let mut client = RespClient::connect(server.addr());
    client.command(&["AUTH", "secret"]);
    client
}

#[test]
fn a_latecomer_joins_takes_over_and_leaves() {
    let cluster = Cluster::builder().latecomer().start();
    let nodes = cluster.servers().len();
    assert_eq!(nodes, 7);
    assert_eq!(cluster.url().matches("127.0.0.1").count(), 6);
    for _ in 0..2 {
        let late = cluster.join_latecomer();
        let master = &cluster.servers()[0];
        cluster.failover(late, FailoverKind::Takeover);
        assert_eq!(late.info("role"), "master");
        cluster.failover(master, FailoverKind::Orderly);
        assert_eq!(master.info("role"), "master");
        cluster.dismiss_latecomer();
        assert!(!late.is_running());
        assert!(cluster.wait_until_ok(SOON));
    }
}
