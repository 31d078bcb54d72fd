//! How certain a holder can be, why a lease was lost, and the result of a release.

use std::fmt;

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until this release; or, in a reentrant chain, another guard still holds
    /// it.
    WasHeld,
    /// The lease had already ended: the work was not protected until its end.
    AlreadyGone,
    /// The store did not reply in time. The release is retried in the background, and the lease
    /// expires at its deadline at the latest.
    Unknown,
}

/// The result of [resigning](crate::Leadership::resign_to) in favour of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resigned {
    /// The leadership was offered to the candidate.
    ToCandidate,
    /// The candidate no longer waited: the leadership was offered to the next one, or nobody waited.
    ToOther,
    /// The lease had already ended.
    AlreadyGone,
    /// The store did not reply in time. It is retried in the background, and the lease expires at its
    /// deadline at the latest.
    Unknown,
}

/// How certain a holder can be.
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
    /// It was held for the maximum time, [`max_hold`](crate::Lock::max_hold).
    MaxHold,
    /// The client was shut down.
    Shutdown,
    /// The leader's [health check](crate::Election::health) failed, so it resigned.
    Unhealthy,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed before a renewal succeeded",
            Self::Gone => "the store no longer has it",
            Self::Taken => "another holder has it",
            Self::MaxHold => "it was held for the maximum time, `max_hold`",
            Self::Shutdown => "the client was shut down",
            Self::Unhealthy => "its health check failed",
        })
    }
}
