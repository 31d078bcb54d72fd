//! How sure a holder can be, why a lease was lost, and what a release found.

use std::fmt;

/// What became of a lease that was to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// It was held to the end; or, in a chain, it still is by another guard.
    WasHeld,
    /// It had ended before: the work was not protected to its end.
    AlreadyGone,
    /// The store did not say in time. The release is repeated in the background, and the lease
    /// ends by itself at the latest.
    Unknown,
}

/// How sure a holder can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// Granted or renewed, and the deadline has not passed.
    Held,
    /// The deadline has not passed, but renewals fail.
    Suspect,
    /// No longer held.
    Lost,
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The deadline passed and no renewal had succeeded.
    Expired,
    /// The store no longer has it: released by force, deleted, evicted, or lost with the server's
    /// data.
    Gone,
    /// Another holder has the lock.
    Taken,
    /// It was held for as long as [`max_hold`](crate::Lock::max_hold) allows.
    MaxHold,
    /// The client was shut down.
    Shutdown,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed before a renewal succeeded",
            Self::Gone => "the store no longer has it",
            Self::Taken => "another holder has it",
            Self::MaxHold => "it was held for as long as `max_hold` allows",
            Self::Shutdown => "the client was shut down",
        })
    }
}
