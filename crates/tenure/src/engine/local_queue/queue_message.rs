//! What is told to the task of a queue.

use std::time::Duration;

use crate::lease::LeaseId;
use crate::store::OfferedGrant;

/// Messages to the task of a queue.
#[derive(Clone)]
pub(in crate::engine) enum QueueMessage {
    /// A caller joined whose limit comes before the task would wake up by itself.
    Joined,
    /// A caller left.
    Left,
    /// Our place in the store's queue was given up together with a release.
    LeftStoreQueue,
    /// Our place in the store's queue is gone, because heartbeats were missing for too long.
    LostStorePlace(LeaseId),
    /// The lock was offered to this lease, perhaps with a grant.
    Offered(LeaseId, Option<OfferedGrant>),
    /// The lock is free, and perhaps this waiter is next.
    Opened(Option<LeaseId>),
    /// The lock is reserved for the next waiter for this long only.
    ShortOffer(Duration),
    /// Try again: messages may have been lost.
    Retry,
    Close,
}
