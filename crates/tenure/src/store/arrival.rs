//! What a store is asked about a latch, and its replies.

use std::time::Duration;

use crate::lease::LeaseId;
use crate::name::LockName;

/// A party arrives at a latch, or a look at one.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) name: LockName,
    /// How many parties must arrive.
    pub(crate) need: u32,
    /// For how long the latch is remembered after this.
    pub(crate) remember: Duration,
    /// `None` for a look.
    pub(crate) party: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LatchReply {
    /// So many parties have arrived.
    Closed { arrived: u32 },
    /// As many as needed have arrived.
    Open,
    /// The latch waits for another number of parties.
    OtherNeed(u32),
    /// The name is that of a lock or a semaphore, which has this in place of a lease id.
    Lock(LeaseId),
}
