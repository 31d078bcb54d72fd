//! Elections, where a real server counts, dies, or says what is no longer so.

use std::process::Command;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Fence, Leader, Observer, Redlock, Tenure};
use tenure_testkit::{
    ClientKind, ClientProcess, Proxy, RedisServer, RedlockNodes, RespClient, Sentinels, eventually,
};
use tokio::time::timeout;

use crate::lua::{self, eval};
use crate::stage::{ms, soon};
use crate::verdict::check_error;

const LIMIT: Duration = Duration::from_secs(30);
const URL: &str = "TENURE_TEST_LEAD_AT";
const META: &str = "tenure:meta:{n}";
/// The lease of a candidate, as the library makes it.
const CANDIDATE: &str = "tenure:00000000000080008000000000000007:0007:30000";

async fn next(observer: &mut Observer) -> Option<Leader> {
    let next = timeout(LIMIT, observer.next()).await;
    next.expect("a report").unwrap()
}

async fn until_term(observer: &mut Observer, term: Fence) -> Leader {
    loop {
        if let Some(leader) = next(observer).await.filter(|it| it.term == Some(term)) {
            return leader;
        }
    }
}

/// Makes a candidate the leader of `n` as the library does, for half a minute.
fn elect(redis: &mut RespClient, value: &str) -> i64 {
    let keys = [
        "n",
        "tenure:fences",
        "tenure:fences:{n}",
        "tenure:queue:{n}",
        "tenure:alive:{n}",
    ];
    let keys = [&keys[..], &[META]].concat();
    let meta = ["tenure:since", "", "tenure:term", "", "tenure:value", value];
    let args = [CANDIDATE, "30000", "9007199254740991", "1", "", ""];
    let args = [&args[..], &meta].concat();
    eval(redis, lua::ACQUIRE, &keys, &args).unwrap().int()
}

fn field(redis: &mut RespClient, field: &str) -> String {
    redis.command(&["HGET", META, field]).text().to_owned()
}

/// The program of a leader that is killed. Does nothing unless started by the test below.
#[test]
fn leader_program() {
    let Ok(url) = std::env::var(URL) else { return };
    let tenure = tenure::blocking::Tenure::connect(url).unwrap();
    let election = tenure.election("n").ttl(ms(1_500));
    let leadership = election.campaign("killed").unwrap();
    println!("\nleads {}", leadership.term());
    std::thread::sleep(ms(60_000));
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_succeeded_when_its_lease_ends() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "election::leader_program", "--nocapture"])
        .env(URL, server.url());
    let process = ClientProcess::spawn(&command);
    let term = loop {
        let line = process.expect_line(LIMIT);
        if let Some(term) = line.strip_prefix("leads ") {
            break Fence::new(term.parse().unwrap());
        }
    };
    let election = tenure.election("n");
    let mut observer = election.observe().unwrap();
    let leader = until_term(&mut observer, term).await;
    assert_eq!(leader.value.as_deref(), Some("killed"));
    process.kill();
    let killed = Instant::now();
    assert!(next(&mut observer).await.is_none(), "nobody leads");
    assert!(killed.elapsed() < ms(10_000), "{:?}", killed.elapsed());
    let leadership = election.campaign("next").await.unwrap();
    assert!(leadership.term() > term);
    until_term(&mut observer, leadership.term()).await;
}

/// The reply to the first attempt may be lost, and an observer may have seen its term.
#[test]
fn a_repeated_attempt_has_the_same_term() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let term = elect(&mut redis, "one");
    assert_eq!(field(&mut redis, "tenure:term"), term.to_string());
    redis.command(&["PEXPIRE", "n", "5000"]);
    redis.command(&["PEXPIRE", META, "5000"]);
    assert_eq!(elect(&mut redis, "one"), term);
    for key in ["n", META] {
        let left = redis.command(&["PTTL", key]).int();
        assert!(left > 20_000, "`{key}` lives for {left} ms");
    }
    // An offer that is accepted is another grant.
    redis.command(&["DEL", META]);
    assert!(elect(&mut redis, "one") > term);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_first_reply_was_lost_has_the_term_that_observers_saw() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let tenure = Tenure::connect(proxy.url()).await.unwrap();
    let observing = Tenure::connect(server.url()).await.unwrap();
    let mut observer = observing.election("n").observe().unwrap();
    assert!(next(&mut observer).await.is_none());
    proxy.hold_replies();
    let campaign = tokio::spawn(async move {
        let election = tenure.election("n");
        election.campaign("one").await.unwrap()
    });
    let seen = next(&mut observer).await.expect("elected on the server");
    proxy.reset_all();
    proxy.heal();
    let leadership = timeout(LIMIT, campaign).await.expect("elected").unwrap();
    assert_eq!(seen.term, Some(leadership.term()));
    assert_eq!(&seen.lease, leadership.lease_id());
}

#[test]
fn a_late_attempt_or_proclamation_does_not_undo_a_later_value() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let term = elect(&mut redis, "one").to_string();
    let proclaim = |redis: &mut RespClient, version: &str, value: &str| {
        let args = [CANDIDATE, "30000", &term, version, value];
        let code = lua::PROCLAIM.replace("LAYOUT", "native");
        let reply = eval(redis, &code, &["n", META], &args).unwrap();
        reply.array()[0].int()
    };
    assert_eq!(proclaim(&mut redis, "2", "three"), 1);
    assert_eq!(proclaim(&mut redis, "1", "two"), 1);
    assert_eq!(field(&mut redis, "tenure:value"), "three");
    elect(&mut redis, "one");
    assert_eq!(field(&mut redis, "tenure:value"), "three");
    // It never extends the lease, and writes nothing that outlasts it.
    redis.command(&["PEXPIRE", "n", "5000"]);
    redis.command(&["DEL", META]);
    assert_eq!(proclaim(&mut redis, "3", "four"), 1);
    for key in ["n", META] {
        let left = redis.command(&["PTTL", key]).int();
        assert!((1..=5_000).contains(&left), "`{key}` lives for {left} ms");
    }
    redis.command(&["SET", "n", "another", "PX", "5000"]);
    assert_eq!(proclaim(&mut redis, "4", "five"), 0);
    assert_eq!(field(&mut redis, "tenure:value"), "four");
    redis.command(&["DEL", "n"]);
    assert_eq!(proclaim(&mut redis, "4", "five"), 0);
    assert_eq!(redis.command(&["EXISTS", "n"]).int(), 0);
}

#[test]
fn invalid_numbers_of_a_proclamation_change_nothing() {
    let code = lua::PROCLAIM.replace("LAYOUT", "native");
    let good = ["id", "30000", "7", "1", "v"];
    let prepare = ["SET", "n", "id", "PX", "30000"];
    lua::check_bad_numbers(&code, &["n", META], &good, &[1, 2, 3], &prepare);
}

/// A candidate that was offered the lock may be dead: nobody leads until it has accepted.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_is_not_a_leader() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let election = tenure.election("n");
    let leadership = election.campaign("first").await.unwrap();
    let mut redis = server.client();
    redis.command(&["ZADD", "tenure:queue:{n}", "1", CANDIDATE]);
    leadership.resign().await.unwrap();
    let holder = tenure.lock("n").holder_brief().await.unwrap().unwrap();
    assert_eq!(holder.lease.as_str(), CANDIDATE, "offered");
    assert!(election.leader().await.unwrap().is_none());
    assert!(next(&mut election.observe().unwrap()).await.is_none());
}

/// As a server that was replaced would tell it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_term_is_not_reported() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    let mut tell = |id: &str, term: &str, ms: &str| {
        redis.command(&["SET", "n", id, "PX", ms]);
        redis.command(&[
            "HSET",
            META,
            "lease",
            id,
            "tenure:term",
            term,
            "tenure:value",
            term,
        ]);
        redis.command(&["PEXPIRE", META, ms]);
    };
    let other = CANDIDATE.replace("0007:", "0008:");
    tell(CANDIDATE, "70", "30000");
    let mut observer = tenure.election("n").observe().unwrap();
    assert_eq!(
        next(&mut observer).await.unwrap().term,
        Some(Fence::new(70))
    );
    tell(&other, "60", "30000");
    let pause = timeout(ms(500), observer.next()).await;
    assert!(pause.is_err(), "went back: {pause:?}");
    tell(&other, "71", "30000");
    assert_eq!(
        next(&mut observer).await.unwrap().term,
        Some(Fence::new(71))
    );
    // What is known stays no longer than its own lease.
    tell(CANDIDATE, "72", "1000");
    assert_eq!(
        next(&mut observer).await.unwrap().term,
        Some(Fence::new(72))
    );
    tell(&other, "60", "30000");
    assert!(next(&mut observer).await.is_none());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_costs_one_command_for_each_change() {
    const CHANGES: u64 = 10;
    let server = RedisServer::start();
    let leading = Tenure::connect(server.url()).await.unwrap();
    let observing = Tenure::connect(server.url()).await.unwrap();
    // Renewals and looks of its own are far away.
    let (ttl, election) = (ms(60_000), leading.election("n"));
    let leadership = election.ttl(ttl).campaign("0").await.unwrap();
    let mut observer = observing.election("n").ttl(ttl).observe().unwrap();
    next(&mut observer).await;
    server.reset_stats();
    for change in 1..=CHANGES {
        leadership.proclaim(change.to_string()).await.unwrap();
        let leader = next(&mut observer).await.unwrap();
        assert_eq!(leader.value, Some(change.to_string()));
    }
    let calls = server.command_calls("evalsha") + server.command_calls("eval");
    assert!(calls <= 2 * CHANGES + 2, "{calls} scripts");
    assert_eq!(
        server.command_calls("publish"),
        0,
        "nobody is told by message"
    );
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_goes_on_when_its_connections_are_cut_or_its_server_is_away() {
    let server = RedisServer::start();
    let leading = Tenure::connect(server.url()).await.unwrap();
    let observing = Tenure::builder(server.url()).unreachable_after(ms(1_500));
    let observing = observing.connect().await.unwrap();
    let mut observer = observing.election("n").ttl(ms(60_000)).observe().unwrap();
    assert!(next(&mut observer).await.is_none());
    assert!(server.kill_clients(ClientKind::Normal) > 0);
    let election = leading.election("n").ttl(ms(60_000));
    let leadership = election.campaign("one").await.unwrap();
    until_term(&mut observer, leadership.term()).await;
    // A server that does not reply is an error, and not the end.
    server.pause();
    let unknown = timeout(LIMIT, observer.next()).await.expect("told");
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::Unavailable);
    server.resume();
    let leader = until_term(&mut observer, leadership.term()).await;
    assert_eq!(leader.value.as_deref(), Some("one"));
    let proclaimed = async || leadership.proclaim("two").await.is_ok();
    assert!(soon(proclaimed).await);
    loop {
        let leader = next(&mut observer).await;
        if leader.is_some_and(|it| it.value.as_deref() == Some("two")) {
            break;
        }
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_follows_a_failover() {
    let sentinels = Sentinels::start();
    let leading = Tenure::connect(sentinels.url()).await.unwrap();
    let observing = Tenure::connect(sentinels.url()).await.unwrap();
    let election = leading.election("n").ttl(ms(20_000));
    let leadership = election.campaign("before").await.unwrap();
    let mut observer = observing.election("n").observe().unwrap();
    until_term(&mut observer, leadership.term()).await;
    assert!(sentinels.wait_for_sync(LIMIT));
    tokio::task::block_in_place(|| sentinels.failover());
    let term = leadership.term();
    let proclaimed = async || leadership.proclaim("after").await.is_ok();
    assert!(soon(proclaimed).await, "it leads on at the new primary");
    loop {
        match timeout(LIMIT, observer.next()).await.expect("a report") {
            Ok(Some(leader)) if leader.value.as_deref() == Some("after") => {
                assert_eq!(leader.term, Some(term));
                break;
            }
            Ok(Some(leader)) => assert_eq!(leader.term, Some(term)),
            // Between the primaries.
            Ok(None) | Err(_) => {}
        }
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_no_lock_is_no_election() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.client().command(&["RPUSH", "n", "x"]);
    let election = tenure.election("n");
    let parts = ["`n`", "list", "use another name"];
    check_error(
        &election.campaign("v").await.unwrap_err(),
        ErrorKind::NotALock,
        &parts,
    );
    check_error(
        &election.leader().await.unwrap_err(),
        ErrorKind::NotALock,
        &parts,
    );
    let mut observer = election.observe().unwrap();
    let told = timeout(LIMIT, observer.next()).await.expect("told");
    check_error(&told.unwrap_err(), ErrorKind::NotALock, &parts);
    server.client().command(&["DEL", "n"]);
    assert!(next(&mut observer).await.is_none(), "it goes on");
    let error = tenure.election("").observe().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
}

/// A value that a majority has heard is the value, whatever the other node says.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_a_value_does_not_bring_the_old_one_back() {
    let nodes = RedlockNodes::builder().nodes(3).start();
    let redlock = Redlock::connect(nodes.urls()).await.unwrap();
    let leadership = redlock.election("n").campaign("old").await.unwrap();
    let everywhere = |value: &str| {
        let has = |node| field(&mut nodes.node(node).client(), "tenure:value") == value;
        eventually(LIMIT, || (0..3).all(has))
    };
    assert!(everywhere("old"));
    leadership.proclaim("new").await.unwrap();
    assert!(everywhere("new"));
    let mut behind = nodes.node(0).client();
    behind.command(&["HSET", META, "tenure:value", "old"]);
    behind.command(&["HDEL", META, "tenure:version"]);
    for _ in 0..20 {
        let leader = redlock.election("n").leader().await.unwrap().unwrap();
        assert_eq!(leader.value.as_deref(), Some("new"));
        assert_eq!(leader.term, Some(leadership.term()));
    }
    // Terms of different rounds of votes are no leader's.
    for (node, term) in [(0, "5"), (1, "6")] {
        let mut redis = nodes.node(node).client();
        redis.command(&["HSET", META, "tenure:term", term]);
    }
    assert!(redlock.election("n").leader().await.unwrap().is_none());
}
