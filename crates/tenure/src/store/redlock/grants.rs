//! What this client has been granted, and on which nodes it may stand.

use std::collections::HashMap;
use std::sync::Mutex;

use super::voter::lock;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::Landing;
use crate::store::redis::{Ballot, Sent};

/// Of how many names the last fence is remembered.
const NAMES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Grants {
    leases: Mutex<HashMap<LeaseId, Grant>>,
    /// The greatest fence that any node told of, by name: so that the next block is above it.
    fences: Mutex<HashMap<LockName, u64>>,
}

/// A lease that a majority granted.
#[derive(Clone, Default)]
pub(super) struct Grant {
    /// The last of its fences; none for an adopted one until it is known.
    pub(super) last_fence: Option<u64>,
    /// The nodes it may stand on, and behind what a release must travel there.
    pub(super) sent: Vec<(usize, Sent)>,
    /// Those of them that had not answered when a majority had.
    pub(super) unheard: Vec<usize>,
    /// Where a question about it got no answer, and may still land.
    pub(super) unknown: Vec<(usize, Landing)>,
    /// Whether it was offered again to a node that had forgotten it.
    pub(super) repaired: bool,
}

impl Grants {
    pub(super) fn note(
        &self,
        lease: &LeaseId,
        ballot: Ballot,
        sent: Vec<(usize, Sent)>,
        unheard: Vec<usize>,
    ) {
        let mut leases = lock(&self.leases);
        let grant = leases.entry(lease.clone()).or_default();
        grant.last_fence = Some(ballot.last());
        // Nodes that voted before and could not be asked now may still have it.
        grant
            .sent
            .retain(|(node, _)| sent.iter().all(|(new, _)| new != node));
        grant.sent.extend(sent);
        grant.unheard = unheard;
    }

    /// Takes note of a lease that came from elsewhere.
    pub(super) fn note_adopted(&self, lease: &LeaseId, last_fence: Option<u64>) {
        let mut leases = lock(&self.leases);
        leases.entry(lease.clone()).or_default().last_fence = last_fence;
    }

    /// Takes note that a question about a lease may still land. False if the lease is no longer
    /// held: then it must be taken back.
    pub(super) fn may_land(&self, lease: &LeaseId, node: usize, landing: Landing) -> bool {
        let mut leases = lock(&self.leases);
        let grant = leases.get_mut(lease);
        grant.is_some_and(|grant| {
            grant.unknown.push((node, landing));
            true
        })
    }

    /// The last fence of a lease that is to be offered to a node again, unless it is being
    /// released. From now on its release goes the way of the repair.
    pub(super) fn begin_repair(&self, lease: &LeaseId) -> Option<u64> {
        let mut leases = lock(&self.leases);
        let grant = leases.get_mut(lease)?;
        grant.repaired = true;
        grant.last_fence
    }

    /// A lease whose release can go the way of its votes: nothing else was ever sent about it.
    pub(super) fn take_plain(&self, lease: &LeaseId) -> Option<Grant> {
        let mut leases = lock(&self.leases);
        let grant = leases.get(lease)?;
        let plain = !grant.repaired && grant.unknown.is_empty() && !grant.sent.is_empty();
        plain.then(|| leases.remove(lease)).flatten()
    }

    pub(super) fn put_back(&self, lease: &LeaseId, grant: Grant) {
        lock(&self.leases).insert(lease.clone(), grant);
    }

    /// The lease is released, or nobody believes in it any more.
    pub(super) fn take(&self, lease: &LeaseId) -> Option<Grant> {
        lock(&self.leases).remove(lease)
    }

    pub(super) fn saw_fence(&self, name: &LockName, fence: u64) {
        let mut fences = lock(&self.fences);
        if fences.len() >= NAMES_MAX {
            fences.clear();
        }
        let known = fences.entry(name.clone()).or_default();
        *known = fence.max(*known);
    }

    pub(super) fn greatest_fence(&self, name: &LockName) -> u64 {
        lock(&self.fences).get(name).copied().unwrap_or(0)
    }
}
