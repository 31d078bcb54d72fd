//! Many who want the same at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_testkit::RedlockNodes;
use tokio::sync::Mutex;

use super::connect;
use crate::stage::ms;

/// For how long they compete.
const TIME: Duration = Duration::from_secs(6);

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h56_thirty_two_competitors_always_get_on() {
    let nodes = RedlockNodes::builder().nodes(5).start();
    let (grants, stop) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(AtomicBool::new(false)),
    );
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..32_usize {
        let client = connect(&nodes).await;
        let (grants, stop, inside) = (Arc::clone(&grants), Arc::clone(&stop), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let guard = client.lock("n").acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                let at = Instant::now();
                grants
                    .lock()
                    .await
                    .push((at, number, at - asked, guard.fence()));
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    tokio::time::sleep(TIME).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let mut grants = Arc::into_inner(grants).unwrap().into_inner();
    grants.sort();
    check(&grants);
}

fn check(grants: &[(Instant, usize, Duration, tenure::Fence)]) {
    let growing = grants.windows(2).all(|pair| pair[0].3 < pair[1].3);
    assert!(growing, "fences in the order of grants");
    let gaps = grants.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let longest = gaps.max().unwrap_or_default();
    let mut waits: Vec<Duration> = grants.iter().map(|grant| grant.2).collect();
    waits.sort();
    let p99 = waits[waits.len() * 99 / 100];
    let seen = format!(
        "{} grants, p99 wait {p99:?}, longest gap {longest:?}",
        grants.len()
    );
    // A second without a grant would be a livelock; a busy machine gets some more.
    assert!(longest < ms(3_000), "{seen}");
    let served = (0..32).filter(|number| grants.iter().any(|grant| grant.1 == *number));
    assert!(served.count() >= 24, "some never get a turn: {seen}");
}
