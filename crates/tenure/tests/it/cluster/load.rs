//! Many clients on many locks, while slots move to and fro.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure_testkit::history::{Outcome, until_ns};
use tenure_testkit::{Cluster, History, Recorder, check};

use super::{CLUSTER, client, fresh_name, other_master};
use crate::stage::ms;

const CLIENTS: u64 = 4;
const TASKS: u64 = 8;
const LOCKS: usize = 12;
/// How long it is quiet before slots move, and for how long they do.
const QUIET: Duration = Duration::from_secs(2);
const MOVING: Duration = Duration::from_secs(5);

#[tenure_testkit::test(flavor = "multi_thread")]
async fn nothing_is_held_twice_while_slots_move() {
    let dir = tempfile::tempdir().unwrap();
    let names: Arc<Vec<String>> = Arc::new((0..LOCKS).map(|_| fresh_name()).collect());
    let (end, grants) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut tasks = Vec::new();
    for number in 1..=CLIENTS {
        let recorder = Arc::new(Recorder::create(dir.path(), number));
        let tenure = client().await;
        for task in 1..=TASKS {
            let (tenure, recorder, names) = (tenure.clone(), recorder.clone(), names.clone());
            let (end, grants) = (end.clone(), grants.clone());
            tasks.push(tokio::spawn(async move {
                while !end.load(Ordering::Relaxed) {
                    let name = &names[rand::random_range(0..LOCKS)];
                    turn(&tenure, &recorder, task, name, &grants).await;
                }
            }));
        }
    }
    tokio::time::sleep(ms(500)).await;
    let rate = |since: &Instant, before: u64| {
        let granted = grants.load(Ordering::Relaxed) - before;
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = granted as f64 / since.elapsed().as_secs_f64();
        rate
    };
    let (since, before) = (Instant::now(), grants.load(Ordering::Relaxed));
    tokio::time::sleep(QUIET).await;
    let quiet = rate(&since, before);

    let (since, before) = (Instant::now(), grants.load(Ordering::Relaxed));
    let (mut moved, moving) = (0, names.clone());
    while since.elapsed() < MOVING {
        let names = moving.clone();
        let moving = tokio::task::spawn_blocking(move || {
            let name = &names[moved % LOCKS];
            CLUSTER.migrate_slot(Cluster::slot_of(name), other_master(&CLUSTER, name));
        });
        moving.await.unwrap();
        moved += 1;
    }
    let during = rate(&since, before);
    end.store(true, Ordering::Relaxed);
    for task in tasks {
        tokio::time::timeout(ms(15_000), task)
            .await
            .expect("it hangs")
            .unwrap();
    }
    println!(
        "{quiet:.0} grants/s before, {during:.0} while {moved} slots moved one after the other: {:.2}",
        during / quiet
    );
    let history = History::load(dir.path());
    check::assert_none(&check::exclusion(&history));
    check::assert_none(&check::fences(&history));
    assert!(moved > 1, "{moved} slots moved");
    assert!(during > quiet / 20.0, "{during} of {quiet} grants/s");
}

/// Takes a lock and releases it, and writes down both.
async fn turn(tenure: &Tenure, recorder: &Recorder, task: u64, name: &str, grants: &AtomicU64) {
    let call = recorder.acquire(task, name);
    let guard = match tenure
        .lock(name)
        .ttl(ms(3_000))
        .wait(ms(3_000))
        .acquire()
        .await
    {
        Ok(guard) => guard,
        Err(error) => {
            assert!(
                matches!(
                    error.kind(),
                    tenure::ErrorKind::Busy | tenure::ErrorKind::Unavailable
                ),
                "{error}"
            );
            return call.end(Outcome::Busy);
        }
    };
    grants.fetch_add(1, Ordering::Relaxed);
    let hold = call.granted(Some(guard.fence().get()), until_ns(|| guard.remaining()));
    tokio::time::sleep(ms(1)).await;
    let until = until_ns(|| guard.remaining());
    let call = recorder.release(task, name, hold, until);
    let released = guard.release().await.unwrap();
    call.end(match released {
        tenure::Released::WasHeld => Outcome::Released,
        tenure::Released::AlreadyGone => Outcome::Lost,
        _ => Outcome::Unknown,
    });
}
