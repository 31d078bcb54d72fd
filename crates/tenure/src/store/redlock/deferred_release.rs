//! What may still stand on a node that could not be asked to take it back. It ends by itself; until
//! then a node that comes back is asked again, by one task for each node.

use std::sync::Arc;
use std::time::Duration;

use super::node::{RedlockNode, lock};
use crate::moment::{Clock, Moment};
use crate::store::redis::Ballot;
use crate::store::{Failure, InFlight, LeaseSpec};

/// How many are remembered for each node. What is forgotten ends by itself too.
const DEFERRED_MAX: usize = 10_000;
/// How long to wait before asking a node again.
const PAUSE: Duration = Duration::from_millis(200);

/// A lease, or a vote for one, that is to be taken back from one node.
#[derive(Clone, Debug)]
pub(super) struct DeferredRelease {
    pub(super) held: LeaseSpec,
    /// The vote, if it is only this one.
    pub(super) ballot: Option<Ballot>,
    /// Where it may still land.
    pub(super) in_flight: Option<InFlight>,
    /// When it has ended by itself.
    pub(super) until: Moment,
}

impl RedlockNode {
    /// Leaves it to the node's own task to take this back.
    pub(super) fn defer_release(&self, leftover: DeferredRelease) {
        let mut deferred = lock(&self.deferred);
        if deferred.len() < DEFERRED_MAX {
            deferred.push(leftover);
        }
        drop(deferred);
        self.deferred_added.notify_one();
    }
}

/// Takes back what was left on a node. Ends with the engine.
pub(super) async fn run(node: Arc<RedlockNode>) {
    let clock = Clock::Boot;
    loop {
        let left = node.deferred_added.notified();
        let mut deferred = std::mem::take(&mut *lock(&node.deferred));
        if deferred.is_empty() {
            left.await;
            continue;
        }
        let now = clock.now();
        deferred.retain(|leftover| now < leftover.until);
        let mut rest = Vec::new();
        let mut deferred = deferred.into_iter();
        for leftover in deferred.by_ref() {
            match retry_release(&node, &clock, &leftover).await {
                Ok(false) => rest.push(leftover),
                Err(failure) if failure.transient => {
                    rest.push(leftover);
                    break;
                }
                // It is done, or the node will not have it.
                Ok(true) | Err(_) => {}
            }
        }
        rest.extend(deferred);
        if !rest.is_empty() {
            lock(&node.deferred).append(&mut rest);
            clock.sleep_until(clock.now() + PAUSE).await;
        }
    }
}

/// Takes it back; true if it can no longer land.
async fn retry_release(
    node: &RedlockNode,
    clock: &Clock,
    leftover: &DeferredRelease,
) -> Result<bool, Failure> {
    let limit = clock.now() + PAUSE * 5;
    let connection = node.store.connection(limit).await?;
    let is_behind = leftover
        .in_flight
        .is_none_or(|in_flight| in_flight.connection == Some(connection.id));
    // Read before the release: so that came later than what the clock shows.
    let now_us = match leftover.in_flight {
        Some(_) if !is_behind => node.store.server_clock(&connection, limit).await?,
        _ => u64::MAX,
    };
    let (held, ballot) = (&leftover.held, leftover.ballot);
    node.store
        .release_on_node(connection, held, ballot, false)
        .await?;
    Ok(leftover
        .in_flight
        .is_none_or(|in_flight| in_flight.latest_us < now_us))
}
