//! Whose turn it is after this process has had the lock for a while.
//!
//! Several nodes have no common queue, so none of them knows who is next. But each knows how many
//! processes are subscribed: if ours is the only one, it continues with new fences. Otherwise it
//! releases the lock and leaves it to the others for a moment.

use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::acquire;
use super::release;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::redis::PlaceAfter;
use crate::store::{AcquireReply, Attempt, Failure, LeaseSpec, TurnReply, Wish};

/// How long a process that has had its turn leaves the lock to other waiters.
const HEAD_START: Duration = Duration::from_millis(10);

pub(super) async fn turn(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    (fences, place): (u32, Option<&LeaseId>),
    limit: Moment,
) -> Result<TurnReply, Failure> {
    let alone = !others_wait(shared, &lease.name, limit).await;
    if alone && let Some(again) = continue_lease(shared, lease, fences, limit).await {
        return Ok(again);
    }
    if !alone {
        shared.set_hold_back(&lease.name, shared.clock.now() + HEAD_START);
    }
    let place = place.map(|waiter| (waiter.clone(), PlaceAfter::Last));
    release::release(shared, lease, place, limit)
        .await
        .map(TurnReply::Passed)
}

/// Votes for the same lease again, with greater fences.
async fn continue_lease(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    fences: u32,
    limit: Moment,
) -> Option<TurnReply> {
    // Metadata stays as it is: a vote without metadata does not touch it.
    let attempt = Attempt {
        held: LeaseSpec {
            has_meta: false,
            ..lease.clone()
        },
        meta: Arc::default(),
        fences,
        queue: false,
        wish: Wish::Lock,
    };
    match acquire::acquire_again(shared, &attempt, limit).await {
        Ok(AcquireReply::Granted { fence, sent_at, .. }) => {
            Some(TurnReply::Again { fence, sent_at })
        }
        _ => None,
    }
}

/// Whether another process is subscribed, on any node that replies.
async fn others_wait(shared: &Arc<RedlockShared>, name: &LockName, limit: Moment) -> bool {
    let mut replies = shared.send_to_all(|store| {
        let name = name.clone();
        async move { store.listeners(&name, limit).await }
    });
    let mut answered = 0;
    while answered < shared.majority {
        match replies.next().await {
            // One of them is this process itself.
            Some((_, Ok(listeners))) if listeners > 1 => return true,
            Some((_, Ok(_))) => answered += 1,
            Some((_, Err(_))) => {}
            None => return true,
        }
    }
    false
}
