//! Which counter mints the fences of locks that are acquired together.

use super::cluster::slot::Slot;
use super::keys::Key;

/// Where a grant gets its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FenceCounter {
    /// All locks of the database share one counter.
    Shared,
    /// Each lock has its own, in its slot of the cluster: only locks of one slot can be acquired or
    /// released together.
    OfEachLock(Slot),
}

impl FenceCounter {
    pub(super) fn of_each(lock: &Key) -> Self {
        Self::OfEachLock(Slot::of_key(lock))
    }

    /// The position of the command that mints for the attempt at this position, among those that mint.
    pub(super) fn position(self, attempt: usize) -> usize {
        match self {
            Self::Shared => 0,
            Self::OfEachLock(_) => attempt,
        }
    }
}
