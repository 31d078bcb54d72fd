//! Releases on nodes that could not be reached. The lease expires there by itself; until then, one
//! task per node retries when the node is back.

use std::sync::Arc;
use std::time::Duration;

use super::node::{RedlockNode, lock};
use crate::moment::{Clock, Moment};
use crate::store::redis::Ballot;
use crate::store::{Failure, InFlight, LeaseSpec};

/// How many are remembered per node. Forgotten ones expire too.
const DEFERRED_MAX: usize = 10_000;
/// How long to wait before retrying.
const PAUSE: Duration = Duration::from_millis(200);

/// A lease, or a vote for one, to release on one node.
#[derive(Clone, Debug)]
pub(super) struct DeferredRelease {
    pub(super) held: LeaseSpec,
    /// The vote, if only this one is to be released.
    pub(super) ballot: Option<Ballot>,
    /// Set if a request may still run there.
    pub(super) in_flight: Option<InFlight>,
    /// When it has expired by itself.
    pub(super) until: Moment,
}

impl RedlockNode {
    /// Leaves the release to the node's own task.
    pub(super) fn defer_release(&self, release: DeferredRelease) {
        let mut deferred = lock(&self.deferred);
        if deferred.len() < DEFERRED_MAX {
            deferred.push(release);
        }
        drop(deferred);
        self.deferred_added.notify_one();
    }
}

/// Retries the deferred releases of a node. Ends with the engine.
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
        deferred.retain(|release| now < release.until);
        let mut rest = Vec::new();
        let mut deferred = deferred.into_iter();
        for release in deferred.by_ref() {
            match retry_release(&node, &clock, &release).await {
                Ok(false) => rest.push(release),
                Err(failure) if failure.transient => {
                    rest.push(release);
                    break;
                }
                // It is done, or the node refuses.
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

/// Releases; true if nothing about it can still run.
async fn retry_release(
    node: &RedlockNode,
    clock: &Clock,
    release: &DeferredRelease,
) -> Result<bool, Failure> {
    let limit = clock.now() + PAUSE * 5;
    let connection = node.store.connection(limit).await?;
    let is_behind = release
        .in_flight
        .is_none_or(|in_flight| in_flight.connection == Some(connection.id));
    // Read before the release, so the release came after this time.
    let now_us = match release.in_flight {
        Some(_) if !is_behind => node.store.server_clock(&connection, limit).await?,
        _ => u64::MAX,
    };
    let (held, ballot) = (&release.held, release.ballot);
    node.store
        .release_on_node(&connection, held, ballot)
        .await?;
    Ok(release
        .in_flight
        .is_none_or(|in_flight| in_flight.latest_us < now_us))
}
