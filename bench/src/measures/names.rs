//! What a million names leave in Redis that were locked once.

use tenure_testkit::RespClient;

use crate::contender::Contender;
use crate::ours::Ours;
use crate::progress;
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const NAMES: usize = 1_000_000;
const TASKS: usize = 256;

pub fn measure(setting: &Setting) -> Vec<Row> {
    progress::tell(&format!("names: {NAMES} names, locked once"));
    let mut redis = setting.server.client();
    redis.command(&["FLUSHALL"]);
    let runtime = two_workers();
    let ours = runtime.block_on(Ours::connect_by_default(&setting.url()));
    let before = used_memory(&mut redis);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| runtime.spawn(lock_each(ours.clone(), task)))
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("no task panics");
    }
    let grown = (used_memory(&mut redis) - before) / (1024.0 * 1024.0);
    redis.command(&["FLUSHALL"]);
    let what = "memory in Redis after 1 000 000 names were locked once";
    let grown = Samples::new([grown]);
    vec![Row::figure(
        what,
        (&grown, Unit::Mebibytes),
        Target::AtMost(10.0),
    )]
}

async fn lock_each(ours: Ours, task: usize) {
    for number in (task..NAMES).step_by(TASKS) {
        let held = ours.acquire(&format!("once:{number}")).await;
        ours.release(held).await;
    }
}

fn used_memory(redis: &mut RespClient) -> f64 {
    let info = redis.command(&["INFO", "memory"]);
    let mut lines = info.text().lines();
    let used = lines.find_map(|line| line.strip_prefix("used_memory:"));
    used.and_then(|used| used.parse().ok())
        .expect("a server tells its memory")
}
