//! Asking the store what is due, in batches, and what its answers mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::tracked_lease::{DueTask, WATCH_AFTER};
use crate::belief::Belief;
use crate::core::Core;
use crate::guard::LostReason;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, RenewReply, WatchReply};

/// How long to wait after a failed renewal: a tenth of what is left, within these bounds.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);
/// How many leases are asked for in one piece.
const BATCH: usize = 128;

/// Asks in batches, and not in too many at once: each question has a limit that begins when it is
/// sent, and a client that is short of time must not let its questions grow old in a queue of its
/// own. The earliest are first.
pub(super) fn run_due(core: &Arc<Core>, tasks: Vec<DueTask>) {
    // Together goes what is confirmed by as many replicas.
    let (mut renewals, mut checks) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for task in tasks {
        match task {
            DueTask::Lose(..) if bug(Bug::LossNotTold) => {}
            DueTask::Lose(belief, reason) => mark_lost(core, &belief, reason),
            DueTask::Renew { belief, watched } => {
                let together = renewals.entry((watched, belief.held.replicas));
                together.or_default().push(belief);
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

/// What may be asked in one piece, with where.
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
    let mut alone = batch;
    if alone.len() > 1 {
        alone = renew_together(&core, alone, watched).await;
    }
    for belief in alone {
        let limit = belief.deadline();
        let result = core.store.renew(&belief.held, watched, limit).await;
        renewed(&core, vec![(belief, result)]);
    }
}

/// Renews a batch in one piece, and returns those that must be asked for by themselves.
async fn renew_together(core: &Core, batch: Vec<Arc<Belief>>, watched: bool) -> Vec<Arc<Belief>> {
    let leases = batch.iter().map(|belief| &belief.held).collect();
    let latest = batch.iter().map(|belief| belief.deadline()).max();
    let limit = latest.unwrap_or(core.clock.now());
    let answers = core.store.renew_all(leases, watched, limit).await;
    let (mut results, mut alone) = (Vec::with_capacity(batch.len()), Vec::new());
    match answers {
        Ok(mut answers) => {
            answers.resize_with(batch.len(), || None);
            for (belief, answer) in batch.into_iter().zip(answers) {
                match answer {
                    Some(answer) => results.push((belief, Ok(answer))),
                    None => alone.push(belief),
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
    alone
}

async fn check(core: Arc<Core>, node: u64, batch: Vec<Arc<Belief>>) {
    let _permit = core.watchdog.checks.acquire(node).await;
    for belief in batch {
        let limit = belief.deadline();
        let result = core.store.watch(&belief.held, limit).await;
        checked(&core, &belief, &result);
    }
}

/// Takes note of what renewals came to, and when they are due again.
fn renewed(core: &Core, results: Vec<(Arc<Belief>, Result<RenewReply, Failure>)>) {
    let mut due = Vec::with_capacity(results.len());
    for (belief, result) in results {
        due.push((belief.number, next_renewal_at(core, &belief, result)));
    }
    core.watchdog.renewals_tried(due);
}

/// When a lease is to be renewed next, after this.
fn next_renewal_at(
    core: &Core,
    belief: &Arc<Belief>,
    result: Result<RenewReply, Failure>,
) -> Option<Moment> {
    let now = core.clock.now();
    // It may have been handed off meanwhile.
    let belief = core.watchdog.current(belief);
    match result {
        Ok(RenewReply::Until { sent_at }) => {
            core.stats.renewed();
            let left = belief.deadline().saturating_since(now);
            core.stats.timings.renewed(left);
            belief.extend(sent_at, now);
            Some(sent_at + belief.held.ttl / 3)
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
            Some(now + (left / 10).clamp(RETRY_MIN, RETRY_MAX))
        }
    }
}

fn checked(core: &Core, belief: &Belief, result: &Result<WatchReply, Failure>) {
    let now = core.clock.now();
    if let Ok(WatchReply::NotHeld(not_held)) = result {
        mark_current_lost(core, belief.number, not_held.reason());
    }
    core.watchdog.update_leases(vec![belief.number], |lease| {
        lease.check.in_flight = false;
        lease.watched = result.is_ok();
        if !lease.watched {
            // Renewals go on by themselves; whether the lease can be watched is tried again, at
            // once if there is news meanwhile.
            let later = now + WATCH_AFTER;
            lease.check.due = Some(lease.check.due.map_or(later, |due| due.min(later)));
        }
    });
}

/// The store no longer has the lease: whoever holds it now has lost it.
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
    }
}
