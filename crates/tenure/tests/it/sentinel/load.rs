//! Several clients at work, and what they did is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::{Builder, Lock, Released};
use tenure_testkit::history::{Op, Outcome, now_ns, until_ns};
use tenure_testkit::{History, Recorder, Sentinels, check};

use super::{FAILOVER_LIMIT, builder, fragile, kill_unheard, meanwhile};
use crate::stage::ms;

const CLIENTS: u64 = 4;
const TASKS: u64 = 2;
const NAMES: [&str; 2] = ["hot", "warm"];
/// Locks that are held for long and never renewed: a client that has one when its master dies learns late
/// that it is gone.
const SLOW: [&str; 3] = ["slow-1", "slow-2", "slow-3"];
/// Longer than a failover takes, and not by much: what a deposed master forgot is soon free again.
const TTL: Duration = ms(4_000);

/// Clients that take and release locks until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    records: TempDir,
}

impl Load {
    async fn begin(builder: &Builder) -> Self {
        let (stop, records) = (
            Arc::new(AtomicBool::new(false)),
            tempfile::tempdir().unwrap(),
        );
        let mut tasks = Vec::new();
        for client in 1..=CLIENTS {
            let tenure = builder.clone().connect().await.unwrap();
            let recorder = Arc::new(Recorder::create(records.path(), client));
            for task in 1..=TASKS {
                let (tenure, recorder) = (tenure.clone(), Arc::clone(&recorder));
                let stop = Arc::clone(&stop);
                tasks.push(tokio::spawn(async move {
                    let mut turn = client + task;
                    while !stop.load(Ordering::Relaxed) {
                        turn += 1;
                        let name = NAMES[usize::try_from(turn).unwrap() % NAMES.len()];
                        let lock = tenure.lock(name);
                        take(&lock, &recorder, task, ms(10)).await;
                    }
                }));
            }
            let stop = Arc::clone(&stop);
            tasks.push(tokio::spawn(async move {
                let mut turn = client;
                while !stop.load(Ordering::Relaxed) {
                    turn += 1;
                    let name = SLOW[usize::try_from(turn).unwrap() % SLOW.len()];
                    let lock = tenure.lock(name).ttl(TTL).no_renewal();
                    take(&lock, &recorder, 0, TTL * 7 / 8).await;
                }
            }));
        }
        Self {
            stop,
            tasks,
            records,
        }
    }

    async fn end(self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        History::load(self.records.path())
    }
}

async fn take(lock: &Lock, recorder: &Recorder, task: u64, work: Duration) {
    let name = lock.name();
    let call = recorder.acquire(task, name);
    let guard = match lock.clone().wait(ms(1_000)).acquire().await {
        Ok(guard) => guard,
        Err(error) if error.kind() == tenure::ErrorKind::Busy => return call.end(Outcome::Busy),
        Err(_) => return call.end(Outcome::Failed),
    };
    let hold = call.granted(Some(guard.fence().get()), until_ns(|| guard.remaining()));
    tokio::select! {
        () = tokio::time::sleep(work) => {}
        _ = guard.lost() => return recorder.lost(task, name, hold),
    }
    let call = recorder.release(task, name, hold, until_ns(|| guard.remaining()));
    call.end(match guard.release().await {
        Ok(Released::WasHeld) => Outcome::Released,
        Ok(Released::AlreadyGone) => Outcome::Lost,
        _ => Outcome::Unknown,
    });
}

/// No two clients held one lock, fences increased, and there was work on both sides of it.
#[track_caller]
fn judge(history: &History) -> String {
    let grants = history.count(Op::Acquire, Outcome::Granted);
    let gap = longest_gap(history);
    check::assert_none(&check::exclusion(history));
    check::assert_none(&check::fences(history));
    assert!(grants > 100, "only {grants}");
    assert!(gap < FAILOVER_LIMIT, "{gap:?}");
    let busy = history.count(Op::Acquire, Outcome::Busy);
    let failed = history.count(Op::Acquire, Outcome::Failed);
    format!("{grants} grants, {busy} busy, {failed} failed; none for {gap:?} at most")
}

/// All replicas confirm each grant, so none is forgotten; and a deposed master gets no confirmation.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h51_confirmed_locks_are_held_once_through_a_failover_under_load() {
    let sentinels = Sentinels::start();
    let load = Load::begin(&builder(&sentinels).ttl(TTL).replicas(2)).await;
    tokio::time::sleep(ms(1_500)).await;
    let begun = Instant::now();
    meanwhile(|| sentinels.failover());
    eprintln!("planned failover settled in {:?}", begun.elapsed());
    tokio::time::sleep(ms(2_000)).await;
    let report = judge(&load.end().await);
    eprintln!("replicas(2), planned failover: {report}");
}

/// No replica hears anything any more when the master is killed, and the new one waits until what it cannot know has ended.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h50_a_pause_keeps_locks_held_once_when_a_master_is_killed_under_load() {
    let sentinels = fragile();
    let load = Load::begin(&builder(&sentinels).ttl(TTL).after_failover(TTL)).await;
    // Until the first master may give locks.
    tokio::time::sleep(TTL + ms(500)).await;
    sentinels.cut_replication(1);
    sentinels.cut_replication(2);
    tokio::time::sleep(ms(3_000)).await;
    let killed = Instant::now();
    kill_unheard(&sentinels);
    eprintln!("the next master was there {:?} later", killed.elapsed());
    tokio::time::sleep(TTL + ms(2_000)).await;
    let report = judge(&load.end().await);
    eprintln!("after_failover, master killed: {report}");
    assert!(sentinels.wait_until_settled(FAILOVER_LIMIT));
}

/// The longest time without a grant.
fn longest_gap(history: &History) -> Duration {
    let events = history.events.iter();
    let grants =
        events.filter(|event| event.op == Op::Acquire && event.outcome == Outcome::Granted);
    let mut times: Vec<u64> = grants.map(|event| event.return_ns).collect();
    times.push(now_ns());
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(gaps.max().unwrap_or(u64::MAX))
}
