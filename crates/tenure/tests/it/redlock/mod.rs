//! Several independent servers: what a majority decides, and what one of them cannot.

mod clocks;
mod combining;
mod crowd;
mod longest_ttl;
mod majority;
mod nodes;
mod restarts;
mod rests;
mod rules;
mod stray_votes;
mod trouble;
mod votes;
mod waiters;

use std::time::Duration;

use tenure::Redlock;
use tenure_testkit::{RedlockNodes, RedlockNodesBuilder};

use crate::stage::soon;

/// A client that plays a process of its own.
async fn connect(nodes: &RedlockNodes) -> Redlock {
    Redlock::connect(nodes.urls()).await.unwrap()
}

/// Nodes that keep everything, so that the first lock needs no wait. But that is set while they run:
/// a node that restarts has forgotten everything, and may forget again.
fn keeping_until_they_restart(builder: RedlockNodesBuilder) -> RedlockNodes {
    let nodes = builder.without_aof().start();
    for node in nodes.nodes() {
        node.set_config("appendfsync", "always");
        node.set_config("appendonly", "yes");
    }
    nodes
}

/// Whether a node has this lock.
fn has(nodes: &RedlockNodes, node: usize, name: &str) -> bool {
    let found = nodes.node(node).client().command(&["EXISTS", name]);
    found.int() == 1
}

/// Waits until this many nodes have the lock. A node that a crowded machine kept from voting gets it
/// with the next renewal, after a third of the ttl.
async fn has_votes(nodes: &RedlockNodes, name: &str, votes: usize) -> bool {
    for _ in 0..6 {
        if soon(async || count(nodes, name) == votes).await {
            return true;
        }
    }
    false
}

/// On how many nodes this lock stands.
fn count(nodes: &RedlockNodes, name: &str) -> usize {
    let all = 0..nodes.nodes().len();
    all.filter(|node| has(nodes, *node, name)).count()
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
