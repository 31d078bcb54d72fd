//! Servers that go away: while connecting, waiting, holding.

use std::time::{Duration, Instant};

use tenure::{Advice, ErrorKind, LostReason, Released, Standing, Tenure};
use tenure_testkit::{Fsync, Proxy, RedisServer};

use crate::stage::{ms, soon};
use crate::verdict::{
    check_error, check_nothing_left, check_refused, check_usable, check_within, refused,
};

const PATIENCE: Duration = ms(1_000);
/// Twice the patience: a call that minds it needs little more than once.
const LATEST: Duration = ms(2_000);

async fn impatient(url: &str) -> Tenure {
    let builder = Tenure::builder(url).unreachable_after(PATIENCE);
    builder.connect().await.unwrap()
}

#[tenure_testkit::test]
async fn connecting_where_nobody_listens_is_unavailable() {
    let server = RedisServer::start();
    let url = server.url();
    server.kill();
    let begun = Instant::now();
    let builder = Tenure::builder(&url).unreachable_after(PATIENCE);
    let error = refused(builder.connect().await);
    let parts = ["connection refused", url.trim_end_matches('/')];
    check_error(&error, ErrorKind::Unavailable, &parts);
    assert_eq!(error.advice(), Advice::Later);
    check_within(begun, LATEST);
}

#[tenure_testkit::test]
async fn connecting_into_a_black_hole_is_unavailable_in_time() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    proxy.black_hole();
    let begun = Instant::now();
    let builder = Tenure::builder(proxy.url()).unreachable_after(PATIENCE);
    check_refused(
        builder.connect().await,
        ErrorKind::Unavailable,
        &["in time"],
    );
    check_within(begun, LATEST);
}

#[tenure_testkit::test]
async fn connecting_waits_for_a_server_that_is_about_to_come() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url();
    let connecting = tokio::spawn(async move { Tenure::connect(url).await });
    tokio::time::sleep(ms(300)).await;
    server.restart();
    check_usable(&connecting.await.unwrap().unwrap(), "n").await;
}

/// What takes the server away, and what brings it back.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Paused,
    BlackHole,
}

impl Fault {
    fn begin(self, server: &RedisServer, proxy: &Proxy) {
        match self {
            Self::Killed => server.kill(),
            Self::Paused => server.pause(),
            Self::BlackHole => proxy.black_hole(),
        }
    }

    fn end(self, server: &RedisServer, proxy: &Proxy) {
        match self {
            Self::Killed => server.restart(),
            Self::Paused => server.resume(),
            Self::BlackHole => proxy.stop_dropping(),
        }
    }
}

fn stage() -> (RedisServer, Proxy) {
    let server = RedisServer::builder().aof(Fsync::Always).start();
    let proxy = Proxy::start(server.addr());
    (server, proxy)
}

/// Each call ends in time, blames only the server, and leaves nothing behind.
async fn check_asking(fault: Fault) {
    let (server, proxy) = stage();
    let tenure = impatient(&proxy.url()).await;
    fault.begin(&server, &proxy);
    let begun = Instant::now();
    check_refused(
        tenure.lock("n").try_acquire().await,
        ErrorKind::Unavailable,
        &[],
    );
    check_within(begun, LATEST);
    let begun = Instant::now();
    check_refused(
        tenure.lock("n").acquire().await,
        ErrorKind::Unavailable,
        &[],
    );
    check_within(begun, LATEST);
    let begun = Instant::now();
    let limited = tenure.lock("n").wait(ms(300)).acquire().await;
    check_refused(limited, ErrorKind::Unavailable, &[]);
    check_within(begun, ms(1_000));
    let begun = Instant::now();
    check_refused(tenure.lock("n").holder().await, ErrorKind::Unavailable, &[]);
    check_within(begun, LATEST);
    fault.end(&server, &proxy);
    check_usable(&tenure, "n").await;
    check_nothing_left(&server, "n");
}

#[tenure_testkit::test]
async fn asking_a_server_that_is_gone() {
    tokio::join!(
        check_asking(Fault::Killed),
        check_asking(Fault::Paused),
        check_asking(Fault::BlackHole),
    );
}

/// Waiters behind the first do not repeat the discovery of the first.
#[tenure_testkit::test]
async fn a_whole_line_learns_at_once_that_the_server_is_gone() {
    let (server, proxy) = stage();
    let tenure = impatient(&proxy.url()).await;
    proxy.black_hole();
    let begun = Instant::now();
    let line: Vec<_> = (0..200)
        .map(|_| {
            let lock = tenure.lock("n");
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    for waiting in line {
        check_refused(waiting.await.unwrap(), ErrorKind::Unavailable, &[]);
    }
    check_within(begun, 2 * LATEST);
    proxy.stop_dropping();
    check_usable(&tenure, "n").await;
    check_nothing_left(&server, "n");
}

/// The server vanishes while callers wait for a holder. They learn of it, the head of the line and
/// those behind it, long before they would have looked again.
async fn check_waiting(fault: Fault) {
    let (server, proxy) = stage();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = impatient(&proxy.url()).await;
    let guard = holder.lock("n").acquire().await.unwrap();
    let wait = |limit: Option<Duration>| {
        let lock = tenure.lock("n");
        tokio::spawn(async move {
            let result = match limit {
                Some(limit) => lock.wait(limit).acquire().await,
                None => lock.acquire().await,
            };
            (refused(result), Instant::now())
        })
    };
    let (head, behind) = (wait(None), wait(None));
    let limited = wait(Some(ms(9_000)));
    assert!(soon(async || tenure.stats().busy >= 2).await);
    tokio::time::sleep(ms(200)).await;
    fault.begin(&server, &proxy);
    let begun = Instant::now();
    // Noticed by the heartbeat of the silent connection at the latest, which takes five seconds.
    let noticed = ms(5_500);
    for (waiting, limit) in [
        (head, noticed + LATEST),
        (behind, noticed + LATEST + PATIENCE),
        (limited, ms(9_500)),
    ] {
        let (error, ended) = waiting.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{fault:?}: {error:?}");
        let taken = ended - begun;
        assert!(taken < limit, "{fault:?}: took {taken:?} of {limit:?}");
    }
    fault.end(&server, &proxy);
    drop(guard);
    check_usable(&tenure, "n").await;
    check_nothing_left(&server, "n");
}

#[tenure_testkit::test]
async fn waiting_at_a_server_that_goes_away() {
    tokio::join!(
        check_waiting(Fault::Killed),
        check_waiting(Fault::Paused),
        check_waiting(Fault::BlackHole),
    );
}

/// Waiters outlast a restart that is shorter than their patience.
#[tenure_testkit::test]
async fn waiters_survive_a_short_restart() {
    let (server, proxy) = stage();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = Tenure::connect(proxy.url()).await.unwrap();
    let guard = holder.lock("n").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let tenure = tenure.clone();
        async move { tenure.lock("n").acquire().await }
    });
    assert!(soon(async || tenure.stats().busy == 2).await);
    server.restart();
    tokio::time::sleep(ms(1_000)).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    check_within(released, ms(3_000));
}

/// The server vanishes under a held lock: suspect, lost at the deadline, a release in time, and
/// after its return nothing is left.
async fn check_holding(fault: Fault) {
    let (server, proxy) = stage();
    let tenure = impatient(&proxy.url()).await;
    let lost = tenure.lock("lost").ttl(ms(1_500)).acquire().await.unwrap();
    let let_go = tenure.lock("n").ttl(ms(6_000)).acquire().await.unwrap();
    fault.begin(&server, &proxy);
    let begun = Instant::now();
    assert_eq!(
        let_go.release().await.unwrap(),
        Released::Unknown,
        "{fault:?}"
    );
    check_within(begun, LATEST);
    assert_eq!(lost.lost().await, LostReason::Expired);
    check_within(begun, ms(6_000));
    assert_eq!(lost.standing(), Standing::Lost);
    let released = Instant::now();
    assert_ne!(lost.release().await.unwrap(), Released::WasHeld);
    check_within(released, LATEST);
    fault.end(&server, &proxy);
    check_usable(&tenure, "lost").await;
    // The release that could not be sent is sent now, before the lease would have ended.
    assert!(begun.elapsed() < ms(5_000), "too slow to tell");
    check_nothing_left(&server, "n");
    assert!(begun.elapsed() < ms(5_900), "it ended by itself");
}

#[tenure_testkit::test]
async fn holding_at_a_server_that_goes_away() {
    tokio::join!(
        check_holding(Fault::Killed),
        check_holding(Fault::Paused),
        check_holding(Fault::BlackHole),
    );
}

/// All data are lost with the server. The holder is notified, and fences still increase.
#[tenure_testkit::test]
async fn a_server_that_comes_back_empty() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    server.restart_empty();
    assert_eq!(guard.lost().await, LostReason::Gone);
    let next = tenure.lock("n").acquire().await.unwrap();
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    assert!(next.is_valid());
}

/// On a connection of the engine and on one that the caller drives, by transaction and by script.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_waited_for_as_long_as_the_response_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let url = format!("redis://{}", proxy.addr());
    let builder = |timeout| {
        let builder = Tenure::builder(&url).response_timeout(timeout);
        builder.unreachable_after(ms(5_000))
    };
    let patient = builder(ms(5_000)).connect().await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let driven = builder(ms(5_000)).runtime(runtime).connect().await.unwrap();
    let hasty = builder(ms(300)).connect().await.unwrap();
    for (tenure, name) in [(&patient, "a"), (&driven, "b")] {
        let guard = tenure.lock(name).acquire().await.unwrap();
        guard.release().await.unwrap();
        proxy.delay_replies(ms(1_500));
        let guard = tenure.lock(name).try_acquire().await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        let guard = tenure.lock(name).meta("by", "script").acquire().await;
        assert_eq!(guard.unwrap().release().await.unwrap(), Released::WasHeld);
        proxy.heal();
    }
    proxy.delay_replies(ms(1_500));
    let parts = ["in time"];
    let refused = hasty.lock("c").try_acquire().await;
    check_refused(refused, ErrorKind::Unavailable, &parts);
    proxy.heal();
    check_usable(&hasty, "c").await;
}
