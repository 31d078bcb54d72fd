//! Functions under locks: what they hold, what they return, and what is refused at compile time.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../examples/locked.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod example;
#[path = "it/refused.rs"]
mod refused;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Error, ErrorKind, Fence, Locks, Tenure, blocking};
use tenure_macros::locked;
use tenure_testkit::RedisServer;
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Tenure {
    Tenure::connect(url).await.unwrap()
}

#[tenure_testkit::test]
async fn the_example_prints_what_it_says() {
    let server = RedisServer::start();
    for url in ["memory://", &server.url()] {
        let mut out = Vec::new();
        example::run(url, &mut out).await.unwrap();
        let source = include_str!("../examples/locked.rs");
        let said = source.split("//! ```text\n").nth(1).unwrap();
        let said = said.split("//! ```\n").next().unwrap().replace("//! ", "");
        assert_eq!(String::from_utf8(out).unwrap(), said);
    }
}

/// An error of a program, made from one of ours.
#[derive(Debug, PartialEq)]
enum Failure {
    Lock(ErrorKind),
    Own(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error.kind())
    }
}

#[locked("n", guard = held)]
async fn fence_of(tenure: &Tenure) -> Result<(Fence, bool), Failure> {
    let is_locked = tenure.lock("n").is_locked().await?;
    Ok((held.fence(), is_locked))
}

#[tenure_testkit::test]
async fn the_body_runs_under_the_lock_and_knows_its_fence() {
    let tenure = client("memory://").await;
    let (first, is_locked) = fence_of(&tenure).await.unwrap();
    assert!(is_locked);
    let (second, _) = fence_of(&tenure).await.unwrap();
    assert!(second > first);
    assert!(!tenure.lock("n").is_locked().await.unwrap());
}

#[locked("n")]
async fn fails(tenure: &Tenure, early: bool) -> Result<(), Failure> {
    if early {
        return Err(Failure::Own("early"));
    }
    Err(Failure::Own("late"))?;
    Ok(())
}

#[tenure_testkit::test]
async fn the_error_of_the_body_is_returned_and_the_lock_released() {
    let tenure = client("memory://").await;
    assert_eq!(fails(&tenure, true).await, Err(Failure::Own("early")));
    assert_eq!(fails(&tenure, false).await, Err(Failure::Own("late")));
    assert!(!tenure.lock("n").is_locked().await.unwrap());
}

#[locked("{}:{id}", place.0, client = locks.clone(), wait = LIMIT, ttl = "20s", shared = true)]
async fn settings<T>(locks: Locks, place: (T, u8), id: &str) -> Result<String, Failure>
where
    T: std::fmt::Display + Send,
{
    let holder = locks.lock(format!("{}:{id}", place.0)).holder().await?;
    let holder = holder.ok_or(Failure::Own("nobody"))?;
    let ttl = holder.reader_leases[0].as_str().rsplit_once(':');
    Ok(format!("{} reader, {} ms", holder.readers, ttl.unwrap().1))
}

/// Generic, by value, spawned: whatever a function may be.
#[tenure_testkit::test]
async fn settings_reach_the_lock() {
    let tenure = client("memory://").await;
    let locks = tenure.as_locks().clone();
    let running = tokio::spawn(settings(locks, ("shop", 1), "7"));
    assert_eq!(running.await.unwrap().unwrap(), "1 reader, 20000 ms");
}

#[locked("n", wait = "0s")]
async fn at_once(tenure: &Tenure) -> Result<(), Failure> {
    Ok(())
}

#[tenure_testkit::test]
async fn a_busy_lock_is_an_error() {
    let tenure = client("memory://").await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    let busy = timeout(LIMIT, at_once(&tenure)).await.unwrap();
    assert_eq!(busy, Err(Failure::Lock(ErrorKind::Busy)));
    guard.release().await.unwrap();
    assert_eq!(at_once(&tenure).await, Ok(()));
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[locked("n")]
async fn hangs(tenure: &Tenure, dropped: Dropped) -> Result<(), Failure> {
    let _dropped = dropped;
    pending::<()>().await;
    Ok(())
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_drops_the_body() {
    let server = RedisServer::start();
    let (tenure, admin) = (client(&server.url()).await, client(&server.url()).await);
    let is_dropped = Arc::new(AtomicBool::new(false));
    let dropped = Dropped(Arc::clone(&is_dropped));
    let running = tokio::spawn(async move { hangs(&tenure, dropped).await });
    let lease = timeout(LIMIT, async {
        loop {
            if let Some(holder) = admin.lock("n").holder_brief().await.unwrap() {
                break holder.lease;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let lease = lease.await.unwrap();
    admin.force_release("n", &lease).await.unwrap();
    let ended = timeout(LIMIT, running).await.unwrap().unwrap();
    assert_eq!(ended, Err(Failure::Lock(ErrorKind::Lost)));
    assert!(is_dropped.load(Ordering::SeqCst));
}

#[tenure_testkit::test]
async fn a_dropped_call_releases_the_lock() {
    let tenure = client("memory://").await;
    let is_dropped = Arc::new(AtomicBool::new(false));
    let dropped = Dropped(Arc::clone(&is_dropped));
    let call = timeout(Duration::from_millis(50), hangs(&tenure, dropped));
    assert!(call.await.is_err());
    assert!(is_dropped.load(Ordering::SeqCst));
    assert_eq!(
        timeout(LIMIT, at_once_retried(&tenure)).await.unwrap(),
        Ok(())
    );
}

#[locked("n")]
async fn at_once_retried(tenure: &Tenure) -> Result<(), Failure> {
    Ok(())
}

struct Account {
    tenure: blocking::Tenure,
    balance: u32,
}

impl Account {
    #[locked("account:{}", self.balance, client = self.tenure, max_hold = "1m", keep = "1ms")]
    fn add(&mut self, amount: u32) -> Result<u32, Failure> {
        self.balance += amount;
        // Re-entered: a thread is an owner.
        self.check()?;
        Ok(self.balance)
    }

    #[locked("checks", client = self.tenure, guard = held)]
    fn check(&self) -> Result<(), Failure> {
        if held.is_valid() && self.balance < 10 {
            return Ok(());
        }
        Err(Failure::Own("too much"))
    }
}

#[test]
fn functions_that_are_not_async_use_the_blocking_client() {
    let tenure = blocking::Tenure::connect("memory://").unwrap();
    let mut account = Account { tenure, balance: 0 };
    assert_eq!(account.add(7), Ok(7));
    assert_eq!(account.add(7), Err(Failure::Own("too much")));
}
