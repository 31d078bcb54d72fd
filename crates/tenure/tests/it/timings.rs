//! How long servers take to answer, as a client tells it that is asked.

use tenure::{Call, CallOutcome, ErrorKind, Locks, Released, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::{Stage, ms, soon};

/// How often this was asked with this outcome, on all servers.
fn count(locks: &Locks, call: Call, outcome: CallOutcome) -> u64 {
    let calls = locks.timings().calls.into_iter();
    let calls = calls.filter(|it| (it.call, it.outcome) == (call, outcome));
    calls.map(|it| it.took.count()).sum()
}

#[tenure_testkit::test]
async fn each_question_is_counted_once_by_what_it_was() {
    let server = RedisServer::builder().password("s3cret").start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    assert!(tenure.timings().calls.is_empty());
    for _ in 0..10 {
        let guard = tenure.lock("n").acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
    tenure.lock("n").holder_brief().await.unwrap();
    for (call, wanted) in [(Call::Acquire, 10), (Call::Release, 10), (Call::Look, 1)] {
        assert_eq!(
            count(tenure.as_locks(), call, CallOutcome::Answered),
            wanted,
            "{call}"
        );
    }
    let told = tenure.timings().calls;
    for calls in &told {
        assert_eq!(*calls.node, *server.addr().to_string(), "only where it is");
        assert_eq!(calls.outcome, CallOutcome::Answered, "{calls:?}");
        assert!(!calls.took.sum().is_zero(), "{calls:?}");
    }
    assert!(!format!("{told:?}").contains("s3cret"));
}

#[tenure_testkit::test]
async fn renewals_are_counted_whether_one_or_many() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    tenure.timings();
    let renewals = || count(tenure.as_locks(), Call::Renew, CallOutcome::Answered);
    let lock = |name: &str| tenure.lock(name).ttl(ms(600));
    let one = lock("one").acquire().await.unwrap();
    assert!(soon(async || renewals() > 0).await);
    let mut many = Vec::new();
    for name in ["a", "b", "c"] {
        many.push(lock(name).acquire().await.unwrap());
    }
    let (before, renewed) = (renewals(), tenure.stats().renewed);
    assert!(soon(async || renewals() > before && tenure.stats().renewed > renewed + 8).await);
    drop((one, many));
}

#[tenure_testkit::test]
async fn what_is_refused_or_not_answered_is_told_apart() {
    let server = RedisServer::builder()
        .user("meek", "on >pw ~* &* +@all")
        .start();
    let url = format!("redis://meek:pw@{}", server.addr());
    let tenure = Tenure::connect(url).await.unwrap();
    tenure.timings();
    let acquired = |outcome| count(tenure.as_locks(), Call::Acquire, outcome);
    let mut admin = server.client();
    admin.command(&["ACL", "SETUSER", "meek", "-evalsha"]);
    let denied = tenure.lock("m").try_acquire().await;
    assert_eq!(denied.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(acquired(CallOutcome::Answered), 0);
    assert!(acquired(CallOutcome::Refused) > 0);
    assert_eq!(acquired(CallOutcome::Unanswered), 0);
    admin.command(&["ACL", "SETUSER", "meek", "+evalsha"]);
    server.pause();
    let silent = tenure.lock("o").try_acquire().await;
    server.resume();
    assert_eq!(silent.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(acquired(CallOutcome::Unanswered) > 0);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_of_several_is_told() {
    for (stage, wanted) in [
        (Stage::redlock_3(), Call::Vote),
        (Stage::cluster(), Call::Acquire),
    ] {
        let locks = stage.client().await;
        locks.timings();
        let nodes = async || {
            for number in 0..10 {
                let lock = locks.lock(format!("lock {number}"));
                lock.acquire().await.unwrap().release().await.unwrap();
            }
            let calls = locks.timings().calls;
            calls.iter().filter(|it| it.call == wanted).count()
        };
        assert!(
            soon(async || nodes().await == 3).await,
            "{:?}",
            locks.timings()
        );
    }
}
