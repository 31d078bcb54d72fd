//! Failovers by real sentinels.

use std::thread;
use std::time::Duration;

use tenure_testkit::{ClockShim, Fsync, RedisServer, RespClient, Sentinels, eventually};

use crate::{A_WHILE, SOON};

/// A failover takes two seconds, and four more when the sentinels' votes are split.
const FAILOVER_LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_deployment_starts_with_all_members_known() {
    let sentinels = Sentinels::start();
    let master = sentinels.master();
    let addrs = sentinels.sentinels().iter().map(RedisServer::addr);
    let addrs: Vec<_> = addrs.collect();
    let [a, b, c] = addrs[..] else {
        panic!("three sentinels");
    };
    let expected = format!("redis-sentinel://{a},{b},{c}/mymaster");
    assert_eq!(sentinels.url(), expected);
    for addr in addrs {
        let mut client = RespClient::connect(addr);
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.name()];
        let named = client.command(&words);
        assert_eq!(named.array()[1].int(), i64::from(master.port()));
        client.command(&["SENTINEL", "CKQUORUM", sentinels.name()]);
    }
    let mut client = master.client();
    client.command(&["SET", "k", "v"]);
    assert_eq!(client.command(&["WAIT", "2", "2000"]).int(), 2);
    assert!(sentinels.wait_for_sync(SOON));
    for replica in sentinels.replicas() {
        assert_eq!(value(replica, "k").as_deref(), Some("v"));
    }
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let sentinels = Sentinels::builder().aof(Fsync::Always).start();
    sentinels.master().client().command(&["SET", "k", "v"]);
    assert!(sentinels.wait_for_sync(SOON));

    let old = sentinels.kill_master();
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_ne!(new.port(), old.port());
    let mut client = new.client();
    assert_eq!(client.command(&["GET", "k"]).text(), "v");
    client.command(&["SET", "k", "w"]);

    old.restart();
    // From its append-only file; no sentinel has reconfigured it yet.
    assert_eq!(old.info("role"), "master");
    assert_eq!(value(old, "k").as_deref(), Some("v"));
    assert!(sentinels.wait_until_settled(FAILOVER_LIMIT));
    assert_eq!(sentinels.master().port(), new.port());
    assert_eq!(old.info("role"), "slave");
    assert!(sentinels.wait_for_sync(SOON));
    assert_eq!(value(old, "k").as_deref(), Some("w"));

    // Its configuration has the new role.
    old.restart();
    assert_eq!(old.info("role"), "slave");
}

/// A master that gets no CPU time for a while must not fail the tests that share it.
#[test]
fn a_steady_deployment_waits_for_a_slow_master() {
    let sentinels = Sentinels::builder().steady().start();
    let slow = sentinels.master();
    slow.pause();
    thread::sleep(Duration::from_secs(4));
    slow.resume();
    assert_eq!(sentinels.master().port(), slow.port());
    for sentinel in sentinels.sentinels() {
        let log = sentinel.log();
        assert!(!log.contains("+sdown"), "a server looked dead:\n{log}");
    }
}

#[test]
fn a_failover_by_command_leaves_the_old_master_a_replica() {
    let sentinels = Sentinels::start();
    let old = sentinels.master();
    old.client().command(&["SET", "k", "v"]);
    assert!(sentinels.wait_for_sync(SOON));
    let new = sentinels.failover();
    assert_ne!(new.port(), old.port());
    assert_eq!(sentinels.master().port(), new.port());
    assert_eq!(value(new, "k").as_deref(), Some("v"));
    new.client().command(&["SET", "k", "w"]);
    let error = old.client().try_command(&["SET", "k", "x"]).unwrap_err();
    assert!(error.starts_with("READONLY"), "{error}");
}

#[test]
fn a_failover_that_was_aborted_is_requested_again() {
    let sentinels = Sentinels::builder().replicas(1).start();
    let candidate = sentinels.replicas()[0];
    let old = begin_and_abort_failover(&sentinels, candidate);
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(new.port(), candidate.port());
}

/// Also while another replica cannot follow.
#[test]
fn a_failover_that_was_aborted_beside_a_lagging_replica_is_requested_again() {
    let sentinels = Sentinels::builder().replicas(2).priority(2, 0).start();
    let lagging = &sentinels.servers()[2];
    lagging.set_config("masterauth", "not-the-password");
    lagging.run(&["CLIENT", "KILL", "TYPE", "master"]);
    assert!(eventually(SOON, || lagging.master_link().as_deref() != Some("up")));
    let candidate = &sentinels.servers()[1];
    let old = begin_and_abort_failover(&sentinels, candidate);
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(new.port(), candidate.port());
}

/// A failover that waits for a paused candidate until the sentinels give up. Returns the old master.
fn begin_and_abort_failover<'a>(
    sentinels: &'a Sentinels,
    candidate: &RedisServer,
) -> &'a RedisServer {
    candidate.pause();
    let old = sentinels.begin_failover();
    let is_aborted = |sentinel: &RedisServer| sentinel.log().contains("-failover-abort");
    let aborted = eventually(FAILOVER_LIMIT, || {
        sentinels.sentinels().iter().any(is_aborted)
    });
    assert!(aborted, "the sentinels still wait for the replica");
    candidate.resume();
    old
}

#[test]
fn a_write_that_was_not_replicated_is_lost_by_a_failover() {
    let builder = Sentinels::builder().replicas(1).proxied_replication();
    let sentinels = builder.start();
    sentinels.cut_replication(1);
    let mut client = sentinels.master().client();
    client.command(&["SET", "k", "v"]);
    assert_eq!(client.command(&["WAIT", "1", "50"]).int(), 0);
    let old = sentinels.kill_master();
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(sentinels.index_of(new), 1);
    assert_eq!(value(new, "k"), None);
}

#[test]
fn the_lagging_replica_is_promoted_if_it_has_the_better_priority() {
    let sentinels = Sentinels::builder().proxied_replication().start();
    sentinels.set_priority(2, 10);
    sentinels.cut_replication(2);
    let mut client = sentinels.master().client();
    client.command(&["SET", "k", "v"]);
    assert_eq!(client.command(&["WAIT", "1", "2000"]).int(), 1);
    assert_eq!(value(&sentinels.servers()[1], "k").as_deref(), Some("v"));
    let old = sentinels.kill_master();
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(sentinels.index_of(new), 2);
    assert_eq!(value(new, "k"), None);
    // Sentinel uses its real address, so the proxy is bypassed.
    assert!(sentinels.wait_until_settled(FAILOVER_LIMIT));
    assert_eq!(value(&sentinels.servers()[1], "k"), None);
}

#[test]
fn a_priority_of_zero_is_never_promoted() {
    let sentinels = Sentinels::builder().priority(1, 0).start();
    let old = sentinels.kill_master();
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(sentinels.index_of(new), 2);
}

#[test]
fn a_cut_link_stays_proxied_and_can_be_healed() {
    let builder = Sentinels::builder().replicas(1).proxied_replication();
    let sentinels = builder.start();
    // Longer than a sentinel would otherwise tolerate an unknown address.
    thread::sleep(Duration::from_secs(3));
    sentinels.cut_replication(1);
    sentinels.master().client().command(&["SET", "k", "v"]);
    assert!(!sentinels.wait_for_sync(A_WHILE));
    assert_eq!(value(&sentinels.servers()[1], "k"), None);
    sentinels.heal_replication(1);
    assert!(sentinels.wait_for_sync(SOON));
    assert_eq!(value(&sentinels.servers()[1], "k").as_deref(), Some("v"));
}

#[test]
fn a_master_that_restarts_empty_unnoticed_empties_its_replicas() {
    let sentinels = Sentinels::builder().replicas(1).start();
    let master = sentinels.master();
    master.client().command(&["SET", "k", "v"]);
    assert!(sentinels.wait_for_sync(SOON));
    master.restart();
    let replica = &sentinels.servers()[1];
    assert!(eventually(SOON, || value(replica, "k").is_none()));
    assert!(sentinels.wait_until_settled(SOON));
    assert_eq!(sentinels.master().port(), master.port());
}

#[test]
fn one_sentinel_alone_promotes_no_replica() {
    let sentinels = Sentinels::builder().replicas(1).start();
    let [first, second, _] = sentinels.sentinels() else {
        panic!("three sentinels");
    };
    first.kill();
    second.pause();
    let old = sentinels.kill_master();
    // It considers the master down after half a second.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(sentinels.master().port(), old.port());
    assert_eq!(sentinels.servers()[1].info("role"), "slave");
    first.restart();
    let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
    assert_eq!(sentinels.index_of(new), 1);
}

#[test]
fn servers_and_sentinels_require_their_passwords() {
    let builder = Sentinels::builder().replicas(1).password("data");
    let sentinels = builder
        .sentinel_password("watch")
        .sentinel_user("alice", "on >pw &* +@all")
        .start();
    let url = sentinels.url();
    assert!(url.starts_with("redis-sentinel://:data@127.0.0.1:"));
    assert!(url.ends_with("/mymaster?sentinel_password=watch"));

    let mut client = RespClient::connect(sentinels.sentinels()[0].addr());
    let words = ["SENTINEL", "MASTERS"];
    let error = client.try_command(&words).unwrap_err();
    assert!(error.starts_with("NOAUTH"), "{error}");
    client.command(&["AUTH", "watch"]);
    client.command(&words);
    client.command(&["AUTH", "alice", "pw"]);
    client.command(&words);

    let mut client = RespClient::connect(sentinels.master().addr());
    let error = client.try_command(&["GET", "k"]).unwrap_err();
    assert!(error.starts_with("NOAUTH"), "{error}");
    client.command(&["AUTH", "data"]);
    client.command(&["SET", "k", "v"]);
    assert!(sentinels.wait_for_sync(SOON));
}

#[test]
fn one_server_uses_another_clock() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let builder = Sentinels::builder().replicas(1).clock(1, clock.clone());
    let sentinels = builder.start();
    let set = ["SET", "k", "v", "PX", "30000"];
    sentinels.master().client().command(&set);
    assert!(sentinels.wait_for_sync(SOON));
    clock.step_forward(Duration::from_mins(1));
    assert_eq!(value(sentinels.master(), "k").as_deref(), Some("v"));
    assert_eq!(value(&sentinels.servers()[1], "k"), None);
}

fn value(server: &RedisServer, key: &str) -> Option<String> {
    let reply = server.client().command(&["GET", key]);
    (!reply.is_nil()).then(|| reply.text().into())
}
