//! A master that has just begun to reign gives no new locks.

use std::time::{Duration, Instant};

use tenure::{Error, ErrorKind, Released, Standing, Tenure};
use tenure_testkit::{Fsync, Proxy, RedisServer, Sentinels};

use super::{FAILOVER_LIMIT, builder, fragile, kill_unheard, meanwhile};
use crate::lua;
use crate::stage::ms;
use crate::verdict::{
    check_error, check_not_yet, check_refused, check_usable, check_within, refused,
};

/// How long a new master waits, and how long leases last.
const WAIT: Duration = ms(5_000);

async fn patient(sentinels: &Sentinels) -> Tenure {
    let builder = builder(sentinels).ttl(WAIT).after_failover(WAIT);
    builder.connect().await.unwrap()
}

async fn patient_at(server: &RedisServer) -> Tenure {
    patient_by(server.url()).await
}

async fn patient_by(url: String) -> Tenure {
    let builder = Tenure::builder(url).ttl(WAIT).after_failover(WAIT);
    builder.connect().await.unwrap()
}

/// The lock that died with its master is not granted again while its holder may believe in it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h50_a_new_master_gives_no_lock_that_its_predecessor_may_have_given() {
    let sentinels = fragile();
    let (holder, other) = (patient(&sentinels).await, patient(&sentinels).await);
    // Long ago, as it would be.
    check_usable_after_wait(&other, "warm").await;
    let kept = holder.lock("kept").acquire().await.unwrap();
    assert!(sentinels.wait_for_sync(FAILOVER_LIMIT));
    sentinels.cut_replication(1);
    sentinels.cut_replication(2);
    let guard = holder
        .lock("n")
        .ttl(WAIT)
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    kill_unheard(&sentinels);
    let met = Instant::now();
    let error = check_not_yet(async || other.lock("n").try_acquire().await).await;
    let parts = ["lock `n` is not granted yet", "has been the primary for"];
    check_error(&error, ErrorKind::Unavailable, &parts);
    // A client that does not know of the failover gets the same error, and a wait continues.
    let later = patient(&sentinels).await;
    check_not_yet(async || later.lock("m").try_acquire().await).await;
    check_not_yet(async || later.lock("n").wait(ms(500)).acquire().await).await;
    // Held locks stay held.
    kept.ensure(WAIT / 2).await.unwrap();
    assert_eq!(kept.standing(), Standing::Held);
    let next = later.lock("n").acquire().await.unwrap();
    assert!(!guard.is_valid(), "two holders");
    let waited = met.elapsed();
    eprintln!("the first grant came {waited:?} after the new master was met; pause {WAIT:?}");
    assert!(next.fence() > guard.fence());
    assert_eq!(kept.release().await.unwrap(), Released::WasHeld);
    // From now on it costs nothing, on connections that come later either.
    let begun = Instant::now();
    check_usable(&other, "n2").await;
    check_usable(&patient(&sentinels).await, "n3").await;
    check_within(begun, ms(2_000));
}

/// A promoted server that no client has asked yet may have been promoted just now.
async fn check_usable_after_wait(tenure: &Tenure, name: &str) {
    let begun = Instant::now();
    check_usable_within(tenure, name, WAIT * 2).await;
    assert!(begun.elapsed() < WAIT * 2);
}

async fn check_usable_within(tenure: &Tenure, name: &str, limit: Duration) {
    let guard = tenure.lock(name).wait(limit).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

/// Also for one server: it may have forgotten, and a little of the pause is over when it is met.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_restarted_server_gives_no_lock_until_the_pause_is_over() {
    let server = RedisServer::builder().aof(Fsync::Always).start();
    let started = Instant::now();
    let tenure = patient_at(&server).await;
    check_usable_within(&tenure, "n", WAIT * 2).await;
    let first = started.elapsed();
    assert!(
        first + ms(1_100) >= WAIT,
        "a new server gave a lock after {first:?}"
    );
    meanwhile(|| server.restart());
    let restarted = Instant::now();
    check_not_yet(async || tenure.lock("n").try_acquire().await).await;
    check_usable_within(&tenure, "n", WAIT * 2).await;
    let again = restarted.elapsed();
    eprintln!("granted {first:?} after the start, {again:?} after the restart");
    assert!(again + ms(1_100) >= WAIT, "{again:?}");
    // Long after: a new client with a new name.
    let begun = Instant::now();
    check_usable(&patient_at(&server).await, "new").await;
    check_within(begun, ms(1_000));
}

fn follow(server: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    server.client().command(&["REPLICAOF", "127.0.0.1", &port]);
}

fn follow_nobody(server: &RedisServer) {
    server.client().command(&["REPLICAOF", "NO", "ONE"]);
}

/// A master is demoted and promoted again while clients stay connected to it. Meanwhile another one
/// reigned and gave a lock that it never heard of.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_server_that_is_promoted_again_begins_anew() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    // Settled and then idle; and one that is only connected, and has asked for nothing yet.
    let settled = patient_at(&one).await;
    check_usable_within(&settled, "n", WAIT * 2).await;
    let silent = patient_at(&one).await;
    // The process is older than the pause by its own account, and the clients have nothing to write.
    tokio::time::sleep(ms(2_500)).await;
    follow(&one, &two);
    assert!(one.wait_for_master(FAILOVER_LIMIT));
    // It follows nobody that answers from now on, and hears of nothing.
    let gone = RedisServer::start();
    gone.kill();
    follow(&one, &gone);
    let between = Tenure::builder(two.url()).ttl(WAIT).connect().await;
    let guard = between
        .unwrap()
        .lock("n")
        .ttl(WAIT)
        .no_renewal()
        .acquire()
        .await;
    let guard = guard.unwrap();
    two.kill();
    follow_nobody(&one);
    for (client, what) in [(&settled, "settled"), (&silent, "silent")] {
        let error = check_not_yet(async || client.lock("n").try_acquire().await).await;
        eprintln!("{what}: {error}");
    }
    // Nor by a new client, and in the end by all.
    let late = patient_at(&one).await;
    check_not_yet(async || late.lock("n").try_acquire().await).await;
    for client in [&settled, &silent, &late] {
        check_usable_within(client, "n", WAIT * 2).await;
    }
    assert!(!guard.is_valid(), "two holders");
}

/// A proxy leads to another server from one command to the next, and the client's connection stays open.
/// The lock that was held at the first server is unknown to the second.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_server_that_was_swapped_under_an_open_connection_begins_anew() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::start_swappable(one.addr());
    let settled = patient_by(format!("redis://{}/", proxy.addr())).await;
    check_usable_within(&settled, "n", WAIT * 2).await;
    let direct = Tenure::builder(one.url()).ttl(WAIT).connect().await;
    let direct = direct.unwrap();
    let guard = direct
        .lock("n")
        .ttl(WAIT)
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let connections = proxy.counts().connections;
    proxy.swap_target(two.addr());
    check_not_yet(async || settled.lock("n").try_acquire().await).await;
    if proxy.counts().connections > connections {
        eprintln!("the client has noticed: the server was silent for too long");
    }
    check_usable_within(&settled, "n", WAIT * 2).await;
    assert!(!guard.is_valid(), "two holders");
}

/// What is written of its first reign comes back to a server: it is not about its second one.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn what_is_written_of_an_earlier_reign_does_not_count() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    check_usable_within(&patient_at(&one).await, "n", WAIT * 2).await;
    let written = || one.client().command(&["GET", "tenure:reign"]);
    let first = written().text().to_owned();
    two.client().command(&["SET", "tenure:reign", &first]);
    follow(&one, &two);
    assert!(one.wait_for_master(FAILOVER_LIMIT));
    follow_nobody(&one);
    assert_eq!(written().text(), first);
    let client = patient_at(&one).await;
    check_not_yet(async || client.lock("n").try_acquire().await).await;
    assert_ne!(written().text(), first);
}

/// A lease that was given away could be adopted twice: at the master that is gone, and at this one.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn nothing_is_adopted_from_a_master_that_has_just_begun() {
    // Nobody renews a detached lease: on a crowded machine it may end meanwhile.
    for _ in 0..10 {
        let error = adopted_from_a_new_master().await;
        if error.kind() != ErrorKind::Lost {
            check_error(&error, ErrorKind::Unavailable, &["not granted yet"]);
            return;
        }
    }
    panic!("the lease was lost each time");
}

async fn adopted_from_a_new_master() -> Error {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let tenure = patient_at(&one).await;
    let guard = tenure.lock("n").wait(WAIT * 2).acquire().await.unwrap();
    follow(&two, &one);
    assert!(two.wait_for_master(FAILOVER_LIMIT));
    let lease = guard.detach().unwrap();
    follow(&one, &two);
    assert!(one.wait_for_master(FAILOVER_LIMIT));
    follow_nobody(&one);
    loop {
        let error = refused(tenure.adopt(&lease).await);
        if !error.to_string().contains("did not answer in time") {
            return error;
        }
    }
}

#[tenure_testkit::test]
async fn a_ttl_that_outlasts_the_pause_is_refused() {
    let server = RedisServer::start();
    let tenure = patient_at(&server).await;
    let long = tenure.lock("n").ttl(WAIT + ms(1)).acquire().await;
    check_refused(
        long,
        ErrorKind::InvalidSetting,
        &["as after_failover", "5.001s"],
    );
    let fixed = tenure
        .lock("n")
        .ttl(WAIT * 2)
        .no_renewal()
        .try_acquire()
        .await;
    check_refused(fixed, ErrorKind::InvalidSetting, &["as after_failover"]);
    let builder = Tenure::builder(server.url()).after_failover(WAIT);
    check_refused(
        builder.connect().await,
        ErrorKind::InvalidSetting,
        &["leases of 30s"],
    );
    let memory = Tenure::builder("memory://").ttl(WAIT).after_failover(WAIT);
    check_refused(
        memory.connect().await,
        ErrorKind::InvalidSetting,
        &["there is no failover"],
    );
}

#[tenure_testkit::test]
async fn a_user_without_info_is_told_that_the_pause_needs_it() {
    let server = RedisServer::builder()
        .user("blind", "on >secret ~* &* +@all -info")
        .start();
    let url = format!("redis://blind:secret@{}/", server.addr());
    let builder = Tenure::builder(url).ttl(WAIT).after_failover(WAIT);
    let tenure = builder.connect().await.unwrap();
    let refusal = tenure.lock("n").try_acquire().await;
    check_refused(refusal, ErrorKind::Denied, &["permission for INFO"]);
}

#[test]
fn the_script_keeps_what_is_written_of_this_master_alone() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let mut reign = || {
        let reply = lua::eval(&mut redis, lua::REIGN, &["r"], &[]).unwrap();
        let text = |i: usize| reply.array()[i].text().to_owned();
        let number = |i: usize| text(i).parse::<u64>().unwrap();
        (text(0), number(1), number(2))
    };
    let (master, since, now) = reign();
    assert_eq!(since, now, "it begins when it is asked for");
    assert!(master.contains(&server.info("run_id")));
    assert!(master.contains(&server.info("master_replid")));
    let (again, kept, _) = reign();
    assert_eq!((again, kept), (master.clone(), since));
    for written in [
        "another 5".to_owned(),
        "nonsense".to_owned(),
        format!("{master} 9007199254740991"),
    ] {
        server.client().command(&["SET", "r", &written]);
        let (_, since, now) = reign();
        assert_eq!(since, now, "`{written}` is not about this reign");
    }
}
