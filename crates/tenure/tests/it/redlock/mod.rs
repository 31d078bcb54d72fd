//! Several independent servers: what a majority decides, and what one of them cannot.

mod clocks;
mod crowd;
mod majority;
mod restarts;
mod rests;
mod rules;
mod trouble;
mod votes;

use std::time::Duration;

use tenure::Redlock;
use tenure_testkit::RedlockNodes;

/// A client that plays a process of its own.
async fn connect(nodes: &RedlockNodes) -> Redlock {
    Redlock::connect(nodes.urls()).await.unwrap()
}

/// Whether a node has this lock.
fn has(nodes: &RedlockNodes, node: usize, name: &str) -> bool {
    let found = nodes.node(node).client().command(&["EXISTS", name]);
    found.int() == 1
}

/// On how many nodes this lock stands.
fn count(nodes: &RedlockNodes, name: &str) -> usize {
    let all = 0..nodes.nodes().len();
    all.filter(|node| has(nodes, *node, name)).count()
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
