//! What may still stand on a node that could not be asked to take it back. It ends by itself; until
//! then a node that comes back is asked again, by one task for each node.

use std::sync::Arc;
use std::time::Duration;

use super::node::{RedlockNode, lock};
use crate::moment::{Clock, Moment};
use crate::store::redis::Ballot;
use crate::store::{Failure, InFlight, LeaseSpec};

/// How many are remembered for each node. What is forgotten ends by itself too.
const MOST: usize = 10_000;
/// How long to wait before asking a node again.
const PAUSE: Duration = Duration::from_millis(200);

/// A lease, or a vote for one, that is to be taken back from one node.
#[derive(Clone, Debug)]
pub(super) struct DeferredRelease {
    pub(super) held: LeaseSpec,
    /// The vote, if it is only this one.
    pub(super) ballot: Option<Ballot>,
    /// Where it may still land.
    pub(super) landing: Option<InFlight>,
    /// When it has ended by itself.
    pub(super) until: Moment,
}

impl RedlockNode {
    /// Leaves it to the node's own task to take this back.
    pub(super) fn leave(&self, leftover: DeferredRelease) {
        let mut leftovers = lock(&self.leftovers);
        if leftovers.len() < MOST {
            leftovers.push(leftover);
        }
        drop(leftovers);
        self.leftover.notify_one();
    }
}

/// Takes back what was left on a node. Ends with the engine.
pub(super) async fn run(voter: Arc<RedlockNode>) {
    let clock = Clock::Boot;
    loop {
        let left = voter.leftover.notified();
        let mut leftovers = std::mem::take(&mut *lock(&voter.leftovers));
        if leftovers.is_empty() {
            left.await;
            continue;
        }
        let now = clock.now();
        leftovers.retain(|leftover| now < leftover.until);
        let mut rest = Vec::new();
        let mut leftovers = leftovers.into_iter();
        for leftover in leftovers.by_ref() {
            match take_back(&voter, &clock, &leftover).await {
                Ok(false) => rest.push(leftover),
                Err(failure) if failure.transient => {
                    rest.push(leftover);
                    break;
                }
                // It is done, or the node will not have it.
                Ok(true) | Err(_) => {}
            }
        }
        rest.extend(leftovers);
        if !rest.is_empty() {
            lock(&voter.leftovers).append(&mut rest);
            clock.sleep_until(clock.now() + PAUSE).await;
        }
    }
}

/// Takes it back; true if it can no longer land.
async fn take_back(
    voter: &RedlockNode,
    clock: &Clock,
    leftover: &DeferredRelease,
) -> Result<bool, Failure> {
    let limit = clock.now() + PAUSE * 5;
    let connection = voter.store.connection(limit).await?;
    let is_behind = leftover
        .landing
        .is_none_or(|landing| landing.connection == Some(connection.id));
    // Read before the release: so that came later than what the clock shows.
    let now_us = match leftover.landing {
        Some(_) if !is_behind => voter.store.server_clock(&connection, limit).await?,
        _ => u64::MAX,
    };
    let (held, ballot) = (&leftover.held, leftover.ballot);
    voter
        .store
        .take_back(connection, held, ballot, false)
        .await?;
    Ok(leftover
        .landing
        .is_none_or(|landing| landing.latest_us < now_us))
}
