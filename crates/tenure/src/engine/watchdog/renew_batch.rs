//! Renews and checks leases in batches, and handles the replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::renewal_time;
use super::tracked_lease::{DueTask, WATCH_AFTER};
use crate::belief::Belief;
use crate::core::Core;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::standing::LostReason;
use crate::store::{Failure, RenewReply, WatchReply};

/// How many leases go into one batch.
const BATCH: usize = 128;

/// Sends batches, but not too many at once: the time limit of a request starts when it is sent, and
/// a client that is short of time must not let requests age in its own queue. The earliest go
/// first.
pub(super) fn run_due(core: &Arc<Core>, tasks: Vec<DueTask>) {
    // A batch has leases with the same number of replicas.
    let (mut renewals, mut checks) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for task in tasks {
        match task {
            DueTask::Lose(..) if bug(Bug::LossNotTold) => {}
            DueTask::Lose(belief, reason) => mark_lost(core, &belief, reason),
            DueTask::Renew { belief, watched } => {
                let batch = renewals.entry((watched, belief.held.replicas));
                batch.or_default().push(belief);
            }
            DueTask::Check(belief) => checks.push(belief),
        }
    }
    for ((watched, _), renewals) in renewals {
        for (node, batch) in batches(core, renewals) {
            tokio::spawn(renew(Arc::clone(core), node, batch, watched));
        }
    }
    for (node, batch) in batches(core, checks) {
        tokio::spawn(check(Arc::clone(core), node, batch));
    }
}

/// Splits leases into batches, each for one node.
fn batches(core: &Core, beliefs: Vec<Arc<Belief>>) -> Vec<(u64, Vec<Arc<Belief>>)> {
    let mut nodes: BTreeMap<u64, Vec<Arc<Belief>>> = BTreeMap::new();
    for belief in beliefs {
        let node = core.store.node_of(&belief.held.name);
        nodes.entry(node).or_default().push(belief);
    }
    let chunks = |(node, beliefs): (u64, Vec<Arc<Belief>>)| {
        let chunks = beliefs.chunks(BATCH).map(<[_]>::to_vec);
        chunks.map(|chunk| (node, chunk)).collect::<Vec<_>>()
    };
    nodes.into_iter().flat_map(chunks).collect()
}

async fn renew(core: Arc<Core>, node: u64, batch: Vec<Arc<Belief>>, watched: bool) {
    let _permit = core.watchdog.renewals.acquire(node).await;
    let mut one_by_one = batch;
    if one_by_one.len() > 1 {
        one_by_one = renew_together(&core, one_by_one, watched).await;
    }
    for belief in one_by_one {
        let limit = belief.deadline();
        let result = core.store.renew(&belief.held, watched, limit).await;
        renewed(&core, vec![(belief, result)]);
    }
}

/// Renews a batch in one round trip, and returns the leases that must be renewed one by one.
async fn renew_together(core: &Core, batch: Vec<Arc<Belief>>, watched: bool) -> Vec<Arc<Belief>> {
    let leases = batch.iter().map(|belief| &belief.held).collect();
    let latest = batch.iter().map(|belief| belief.deadline()).max();
    let limit = latest.unwrap_or(core.clock.now());
    let replies = core.store.renew_all(leases, watched, limit).await;
    let (mut results, mut one_by_one) = (Vec::with_capacity(batch.len()), Vec::new());
    match replies {
        Ok(mut replies) => {
            replies.resize_with(batch.len(), || None);
            for (belief, reply) in batch.into_iter().zip(replies) {
                match reply {
                    Some(reply) => results.push((belief, Ok(reply))),
                    None => one_by_one.push(belief),
                }
            }
        }
        Err(failure) => {
            results.extend(
                batch
                    .into_iter()
                    .map(|belief| (belief, Err(failure.share()))),
            );
        }
    }
    renewed(core, results);
    one_by_one
}

async fn check(core: Arc<Core>, node: u64, batch: Vec<Arc<Belief>>) {
    let _permit = core.watchdog.checks.acquire(node).await;
    for belief in batch {
        let limit = belief.deadline();
        let result = core.store.watch(&belief.held, limit).await;
        checked(&core, &belief, &result);
    }
}

/// Handles the results of renewals, and schedules the next ones.
fn renewed(core: &Core, results: Vec<(Arc<Belief>, Result<RenewReply, Failure>)>) {
    let mut due = Vec::with_capacity(results.len());
    for (belief, result) in results {
        due.push((belief.number, next_renewal_at(core, &belief, result)));
    }
    core.watchdog.renewals_tried(due);
}

/// When to renew a lease next, given this result.
fn next_renewal_at(
    core: &Core,
    belief: &Arc<Belief>,
    result: Result<RenewReply, Failure>,
) -> Option<Moment> {
    let now = core.clock.now();
    // The lease may have been handed off meanwhile.
    let belief = core.watchdog.current(belief);
    match result {
        Ok(RenewReply::Until { sent_at }) => {
            core.stats.renewed();
            let left = belief.deadline().saturating_since(now);
            core.stats.timings.renewed(left);
            belief.extend(sent_at, now);
            Some(renewal_time::after_success(sent_at, belief.held.ttl))
        }
        Ok(RenewReply::NotHeld(not_held)) => {
            mark_current_lost(core, belief.number, not_held.reason());
            None
        }
        Ok(RenewReply::Unconfirmed(failure)) | Err(failure) => {
            core.stats.renewal_failed();
            let left = belief.deadline().saturating_since(now);
            if belief.mark_suspect() {
                tracing::warn!(
                    lock = %belief.held.name, error = %failure.error, ?left,
                    "lock.suspect: renewal failed"
                );
            }
            Some(renewal_time::after_failure(now, left))
        }
    }
}

fn checked(core: &Core, belief: &Belief, result: &Result<WatchReply, Failure>) {
    let now = core.clock.now();
    if let Ok(WatchReply::NotHeld(not_held)) = result {
        mark_current_lost(core, belief.number, not_held.reason());
    }
    core.watchdog.update_leases(vec![belief.number], |lease| {
        lease.check.end();
        lease.watched = result.is_ok();
        if !lease.watched {
            // Renewals continue regardless. Watching is retried later, or at once if a message came
            // meanwhile.
            let later = now + WATCH_AFTER;
            lease.check.set_due_by(later);
        }
    });
}

/// The store no longer has the lease: its current holder has lost it.
fn mark_current_lost(core: &Core, number: u64, reason: LostReason) {
    if let Some(belief) = core.watchdog.mark_lost(number) {
        mark_lost(core, &belief, reason);
    }
}

fn mark_lost(core: &Core, belief: &Belief, reason: LostReason) {
    if belief.mark_lost(reason) {
        core.stats.lost();
        tracing::error!(
            lock = %belief.held.name, lease = %belief.held.id, fence = %belief.fence, %reason,
            "lock.lost"
        );
    } else if !bug(Bug::KeptLossIgnored) {
        core.forget_lost(belief);
    }
}
