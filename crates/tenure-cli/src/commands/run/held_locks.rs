//! The locks under which a command runs.

use std::time::Duration;

use tenure::{Fence, Guard, LeaseId, LockName, LostReason, MultiGuard, Permit};

/// The locks under which a command runs: those of `tenure run`, its permit, or the lock of an election.
#[derive(Clone, Copy)]
pub enum HeldLocks<'a> {
    Several(&'a MultiGuard),
    One(&'a Guard),
    Permit(&'a Permit),
}

impl<'a> HeldLocks<'a> {
    pub fn is_valid(self) -> bool {
        match self {
            Self::Several(guard) => guard.is_valid(),
            Self::One(guard) => guard.is_valid(),
            Self::Permit(permit) => permit.is_valid(),
        }
    }

    /// Until the first of them ends, unless renewed.
    pub fn remaining(self) -> Duration {
        match self {
            Self::Several(guard) => guard.remaining(),
            Self::One(guard) => guard.remaining(),
            Self::Permit(permit) => permit.remaining(),
        }
    }

    /// Resolves when one of them is lost.
    pub async fn lost(self) -> (LockName, LostReason) {
        match self {
            Self::Several(guard) => guard.lost().await,
            Self::One(guard) => (guard.name().clone(), guard.lost().await),
            Self::Permit(permit) => (permit.name().clone(), permit.lost().await),
        }
    }

    /// Each of them, in the order of the command line.
    pub fn each(self) -> Vec<(&'a LockName, Fence, &'a LeaseId)> {
        match self {
            Self::Several(guard) => {
                let leases = guard.lease_ids().map(|(_, lease)| lease);
                let each = guard.fences().zip(leases);
                each.map(|((name, fence), lease)| (name, fence, lease))
                    .collect()
            }
            Self::One(guard) => vec![(guard.name(), guard.fence(), guard.lease_id())],
            Self::Permit(permit) => vec![(permit.name(), permit.fence(), permit.lease_id())],
        }
    }

    /// The slot of a permit.
    pub fn slot(self) -> Option<u32> {
        match self {
            Self::Several(_) | Self::One(_) => None,
            Self::Permit(permit) => Some(permit.slot()),
        }
    }
}
