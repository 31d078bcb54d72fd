//! Hands a lease to the next waiter in the same process.
//!
//! If the first waiter of the local queue asked for exactly this lease, it gets it without a
//! request to the store, with the next of the reserved fences. After some hand-offs, or some time,
//! the store is asked whose turn it is: another process's, or ours again.

use std::sync::Arc;

use super::keep;
use super::local_queue::{LocalQueue, QueueMessage, Waiter};
use super::release::{self, ReleaseRequest};
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::lease::{LeaseId, believed_until};
use crate::mode::Mode;
use crate::pending_work::PendingOne;
use crate::seeded::{Bug, bug};
use crate::store::{ReleaseReply, TurnReply};

/// What is left to do for a lease that its holder released.
pub(crate) enum HandOffOutcome {
    /// Nothing: another waiter has it, it is kept, or a background task takes care of it.
    HandedOff,
    /// It must be released, perhaps together with our place in the store's queue, because no caller
    /// waits here any more.
    Release { dequeue: Option<LeaseId> },
}

/// Hands off a lease that its holder just released, or stops tracking it.
pub(crate) fn try_hand_off(client: &Arc<ClientHandle>, belief: &Arc<Belief>) -> HandOffOutcome {
    let core = &client.core;
    let queue = core.queues.queue(&belief.held.name);
    let queue = queue.filter(|_| belief.lost_reason().is_none() || bug(Bug::HandOffLost));
    let Some(queue) = queue else {
        return keep_or_release(core, belief);
    };
    match choose_next_holder(core, &queue, belief) {
        NextHolder::Waiter(waiter, next) => {
            core.stats.handed_off();
            deliver(core, || waiter.caller.grant_tracked(next));
            HandOffOutcome::HandedOff
        }
        NextHolder::AskTheStore => {
            core.untrack(belief);
            let pending = core.pending.begin();
            let asking = ask_store_for_turn(Arc::clone(client), queue, Arc::clone(belief), pending);
            client.engine.spawn(asking);
            HandOffOutcome::HandedOff
        }
        NextHolder::Nobody => keep_or_release(core, belief),
        NextHolder::None { dequeue } => {
            core.untrack(belief);
            HandOffOutcome::Release { dequeue }
        }
    }
}

/// Keeps a lease that no caller of this process waits for, or stops tracking it.
fn keep_or_release(core: &Core, belief: &Arc<Belief>) -> HandOffOutcome {
    if keep::try_keep(core, belief) {
        return HandOffOutcome::HandedOff;
    }
    core.untrack(belief);
    HandOffOutcome::Release { dequeue: None }
}

/// Who gets the lease next.
enum NextHolder {
    Waiter(Waiter, Arc<Belief>),
    AskTheStore,
    /// No caller waits here, and we have no place in the store's queue.
    Nobody,
    None {
        dequeue: Option<LeaseId>,
    },
}

fn choose_next_holder(core: &Core, queue: &LocalQueue, belief: &Arc<Belief>) -> NextHolder {
    let bounds = &core.settings.hand_off;
    // Only the store knows whose turn it is if a caller here waits for it strictly in order. Before the
    // queue is locked: all queues together are locked before one of them.
    let in_order = core.queues.is_waited_for_in_order(&belief.held.name);
    let in_order = in_order && !bug(Bug::FairHandedOff);
    let mut waiters = queue.waiters();
    let Some((number, first)) = waiters.first() else {
        let dequeue = waiters.queued_as.take();
        let dequeue = dequeue.filter(|_| !bug(Bug::PlaceNotLeft));
        return dequeue.map_or(NextHolder::Nobody, |place| NextHolder::None {
            dequeue: Some(place),
        });
    };
    let matches = first.request.is_met_by(belief) || bug(Bug::HandOffAnyWish);
    // The store must write down the next leader's term. Readers join a lease while it is held, instead
    // of getting it when it is released.
    let is_term = first.request.is_candidate() && !bug(Bug::ElectionHandedOff);
    let is_exclusive = belief.held.mode == Mode::Exclusive;
    let can_hand_off = bounds.on && belief.renewed && matches && is_exclusive && !is_term;
    if !can_hand_off || core.is_closed() {
        return NextHolder::None { dequeue: None };
    }
    let next = belief.for_next_holder(bounds, core.clock.now());
    let Some(next) = next.filter(|_| belief.in_flight.is_none() && !in_order) else {
        return NextHolder::AskTheStore;
    };
    // While the queue is locked, so that no other task takes this waiter. The waiter leaves the
    // queue only once the lease is known to be tracked.
    if !core.watchdog.hand_off(belief, &next) {
        return NextHolder::None { dequeue: None };
    }
    if core.is_closed() {
        // A shutdown that began meanwhile may have missed it.
        next.end();
        return NextHolder::None { dequeue: None };
    }
    match waiters.leave(number) {
        Some(waiter) => NextHolder::Waiter(waiter, next),
        None => NextHolder::None { dequeue: None },
    }
}

/// Gives a waiter its lease; `give` starts to track it if necessary.
fn deliver(core: &Core, give: impl FnOnce()) {
    core.stats.acquired();
    core.record_changed.notify_one();
    give();
}

/// Lets the store decide whose turn it is. If it is ours again, the first local waiter gets the
/// lease.
async fn ask_store_for_turn(
    client: Arc<ClientHandle>,
    queue: Arc<LocalQueue>,
    belief: Arc<Belief>,
    pending: PendingOne,
) {
    let core = &client.core;
    let place = queue.waiters().queued_as.clone();
    let fences = core.fences_for(belief.renewed);
    let limit = core.clock.now() + core.settings.unreachable_after;
    let turn = core.store.turn(&belief.held, fences, place.as_ref(), limit);
    match turn.await {
        Ok(TurnReply::Again { fence, sent_at }) => {
            let ttl = belief.held.ttl;
            let now = core.clock.now();
            let next = Arc::new(belief.regranted(fence, fences, (sent_at, now)));
            let believable = now < believed_until(sent_at, ttl);
            let usable = believable && !core.is_closed();
            match usable.then(|| queue.take_first_matching(&next)).flatten() {
                Some(waiter) => deliver(core, || waiter.caller.grant(next)),
                None => release(core, &next, false, pending).await,
            }
        }
        Ok(TurnReply::Passed(released)) => {
            let offered = match &released {
                ReleaseReply::WasHeld { offered_to } => offered_to.is_some(),
                ReleaseReply::Passed { .. } => true,
                ReleaseReply::NotHeld => false,
            };
            release::note_released(core, &belief.held, released);
            if !offered {
                // No other message tells the queue that the lock may be free.
                queue.send(QueueMessage::Retry);
            }
        }
        Err(failure) => release(core, &belief, failure.in_flight.is_some(), pending).await,
    }
}

async fn release(core: &Arc<Core>, belief: &Belief, unknown: bool, pending: PendingOne) {
    let request = ReleaseRequest {
        unknown,
        ..core.release_request(belief, None)
    };
    release::release_and_cancel(Arc::clone(core), request, None, pending).await;
}
