//! One sale from its opening to the verdict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure_sale::Sale;
use tenure_testkit::sale::{Account, Recorder, violations};
use tenure_testkit::{Nemesis, eventually};

use crate::client::Role;
use crate::deployment::Deployment;
use crate::fleet::Fleet;
use crate::items::{self, OnSale, REFILL};
use crate::nemesis::{self, Lane, Operators};
use crate::patience::stretched;
use crate::plan::Plan;
use crate::report::Report;
use crate::stage::Stage;
use crate::{again, allowance, broken, settle};

/// How often a line tells how far the run is.
const PROGRESS: Duration = Duration::from_secs(10);
/// In so many parts the rest of what is refilled comes into the stock.
const DELIVERIES: u64 = 12;
/// The number of the one who asks in the end.
const CLERK: u64 = 0;
/// Time to give buyers their limits again.
const LIMITS_LIMIT: Duration = Duration::from_secs(20);

pub fn run(plan: &Plan, deployment: Deployment) -> Report {
    let start = Instant::now();
    let mut dir = plan.dir(deployment);
    let stage = Stage::start(deployment);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let items = items::all(plan.time());
    let sale = runtime.block_on(open(&stage, &items));
    let operators = Operators {
        sale: sale.clone(),
        runtime: runtime.handle().clone(),
        items: items::all(plan.time()),
    };
    broken::break_for_good(&stage);
    let fleet = Fleet::start(&stage, dir.path(), plan.seed, plan.time());
    {
        let log = Nemesis::create(dir.path());
        let supplies = runtime.spawn(supply(sale.clone(), refill(&items), plan.time()));
        break_things(plan, deployment, &fleet, &log, &operators);
        runtime.block_on(supplies).unwrap();
        fleet.disarm();
        broken::heal(&stage);
    }
    let healed = Instant::now();
    eprintln!("sale on {deployment}: healed after {:.0?}", start.elapsed());
    let clerk = Arc::new(Recorder::create(dir.path(), CLERK));
    let selling = again::sells_again(&sale, &items, &clerk, healed);
    let (sold_again, mut complaints) = runtime.block_on(selling);
    if !eventually(stretched(LIMITS_LIMIT), || operators.restore_limits()) {
        complaints.push("the limits could not be restored".to_owned());
    }
    complaints.extend(fleet.finish(Role::Instance));
    eprintln!(
        "sale on {deployment}: instances ended after {:.0?}",
        start.elapsed()
    );
    let settled = runtime.block_on(settle::settle(&sale, &items, &clerk, dir.path(), &stage));
    eprintln!(
        "sale on {deployment}: at rest after {:.0?}",
        start.elapsed()
    );
    complaints.extend(fleet.finish(Role::Consumer));
    complaints.extend(settled.complaints);
    let account = Account::load(dir.path());
    let breaches = violations(&account, &settled.books, allowance::of(deployment));
    if !(breaches.is_empty() && complaints.is_empty()) {
        dir.keep();
    }
    Report {
        deployment,
        seed: plan.seed,
        seconds: plan.time().as_secs(),
        took: start.elapsed(),
        sold_again,
        processes: fleet.processes(),
        account,
        books: settled.books,
        breaches,
        complaints,
        dir: dir.path().to_owned(),
    }
}

fn refill(items: &[OnSale]) -> u64 {
    let refill = items.iter().find(|item| item.name == REFILL);
    refill.and_then(|item| item.units).unwrap_or_default()
}

async fn open(stage: &Stage, items: &[OnSale]) -> Sale {
    let sale = Sale::open(stage.gate_url(None), stage.ledger_url()).await;
    let sale = sale.unwrap();
    for item in items {
        sale.create(&item.new_item()).await.unwrap();
        sale.open_item(item.name).await.unwrap();
    }
    sale
}

/// Units come into the stock bit by bit, whatever breaks: each delivery once.
async fn supply(sale: Sale, units: u64, time: Duration) {
    let rest = units - units / 4;
    for number in 0..DELIVERIES {
        tokio::time::sleep(time.mul_f64(0.8) / u32::try_from(DELIVERIES).unwrap()).await;
        // The first one brings what division leaves over.
        let part = if number == 0 {
            rest - rest / DELIVERIES * (DELIVERIES - 1)
        } else {
            rest / DELIVERIES
        };
        let reference = format!("delivery-{number}");
        let delta = i64::try_from(part).unwrap();
        while sale
            .adjust(REFILL, delta, "delivery", &reference)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn break_things(
    plan: &Plan,
    deployment: Deployment,
    fleet: &Fleet<'_>,
    log: &Nemesis,
    operators: &Operators,
) {
    let end = Instant::now() + plan.time();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut lanes = Vec::new();
        for (number, kinds) in (1..).zip(nemesis::lanes(deployment)) {
            let lane = Lane {
                stage: fleet.stage,
                fleet,
                log,
                operators,
            };
            let seed = plan.seed.part(1_000_000 + number);
            lanes.push(scope.spawn(move || lane.run(&kinds, seed, end)));
        }
        scope.spawn(|| nemesis::watch_failpoints(fleet, log, &stop));
        scope.spawn(|| {
            while Instant::now() < end {
                thread::sleep(PROGRESS.min(end.saturating_duration_since(Instant::now())));
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                eprintln!("sale on {deployment}: {left} s left");
            }
        });
        let ended: Vec<_> = lanes
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        // Also if one has panicked, otherwise it would go unnoticed.
        stop.store(true, Ordering::Relaxed);
        for lane in ended {
            lane.unwrap();
        }
    });
}
