//! What a change of servers costs: a master that dies under Sentinel, and slots of a Cluster that
//! move while their locks are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Tenure};
use tenure_testkit::{Cluster, Sentinels};
use tokio::runtime::Runtime;

use crate::contender::TTL;
use crate::progress;
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

/// How long grants are counted before the slots move, and while they do.
const BEFORE: Duration = Duration::from_secs(2);
const MOVING: Duration = Duration::from_secs(3);
/// Tasks and locks on the cluster.
const TASKS: usize = 16;
const LOCKS: usize = 12;

pub fn sentinel(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let gap = |title: &str, change: fn(&Sentinels)| {
        let gaps = (1..=setting.rounds).map(|round| {
            progress::tell(&format!("{title}: round {round} of {}", setting.rounds));
            gap_ms(&runtime, change)
        });
        Samples::new(gaps.collect::<Vec<_>>())
    };
    let killed = gap("sentinel, master killed", |sentinels| {
        sentinels.kill_master();
    });
    let planned = gap("sentinel, planned failover", |sentinels| {
        sentinels.begin_failover();
    });
    let row = |what: &str, samples| Row::figure(what, (samples, Unit::Millis), Target::None);
    vec![
        row(
            "Sentinel (down-after 500 ms): master killed to the next grant",
            &killed,
        ),
        row(
            "Sentinel: planned failover, longest time without a grant",
            &planned,
        ),
    ]
}

/// The longest time without a grant, from just before the change until five seconds later.
fn gap_ms(runtime: &Runtime, change: fn(&Sentinels)) -> f64 {
    let sentinels = Sentinels::start();
    let url = sentinels.url();
    let (stop, grants) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let client = runtime.block_on(connect(&url));
    let task = runtime.spawn(grant_on(
        client,
        "failover".to_owned(),
        Arc::clone(&stop),
        {
            let grants: &Arc<AtomicU64> = &grants;
            Arc::clone(grants)
        },
    ));
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    change(&sentinels);
    let (mut seen, mut at, mut longest) = (grants.load(Ordering::Relaxed), begun, Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(6) {
        std::thread::sleep(Duration::from_millis(1));
        let now = grants.load(Ordering::Relaxed);
        if now != seen {
            longest = longest.max(at.elapsed());
            (seen, at) = (now, Instant::now());
        }
    }
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(task).expect("no task panics");
    longest.as_secs_f64() * 1e3
}

pub fn cluster(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let cluster = Cluster::start();
    let client = runtime.block_on(connect(&cluster.url()));
    let (mut before, mut during) = (Vec::new(), Vec::new());
    for round in 1..=setting.rounds {
        progress::tell(&format!(
            "cluster, slots that move: round {round} of {}",
            setting.rounds
        ));
        let (stop, grants) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let name = format!("moving:{}", task % LOCKS);
                let (stop, grants) = (Arc::clone(&stop), Arc::clone(&grants));
                runtime.spawn(grant_on(client.clone(), name, stop, grants))
            })
            .collect();
        before.push(rate(&grants, BEFORE, || {
            std::thread::sleep(Duration::from_millis(20));
        }));
        let mut moved = 0;
        during.push(rate(&grants, MOVING, || {
            migrate(&cluster, &format!("moving:{}", moved % LOCKS));
            moved += 1;
        }));
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            runtime.block_on(task).expect("no task panics");
        }
    }
    let (before, during) = (Samples::new(before), Samples::new(during));
    vec![Row::ratio(
        "Cluster: grants/s while slots in use move, one after the other",
        (&during, Unit::PerSecond),
        ("before", &before),
        Target::None,
    )]
}

/// Grants per second while `work` is done again and again.
fn rate(grants: &AtomicU64, length: Duration, mut work: impl FnMut()) -> f64 {
    let (begun, before) = (Instant::now(), grants.load(Ordering::Relaxed));
    while begun.elapsed() < length {
        work();
    }
    let granted = grants.load(Ordering::Relaxed) - before;
    granted as f64 / begun.elapsed().as_secs_f64()
}

fn migrate(cluster: &Cluster, name: &str) {
    let here = cluster.master_of_key(name).port();
    let mut masters = cluster.servers().iter().take(3);
    let there = masters.find(|server| server.port() != here);
    cluster.migrate_slot(
        Cluster::slot_of(name),
        there.expect("there are three masters"),
    );
}

async fn connect(url: &str) -> Tenure {
    let tenure = Tenure::builder(url).ttl(TTL).connect().await;
    tenure.expect("tenure could not connect")
}

/// Takes and releases one lock again and again.
async fn grant_on(tenure: Tenure, name: String, stop: Arc<AtomicBool>, grants: Arc<AtomicU64>) {
    while !stop.load(Ordering::Relaxed) {
        match tenure.lock(&name).acquire().await {
            Ok(guard) => {
                grants.fetch_add(1, Ordering::Relaxed);
                // Its master may be gone: whoever takes it next says so.
                let _ = guard.release().await;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}
