//! What this client has been granted, and on which nodes it may stand.

use std::collections::HashMap;
use std::sync::Mutex;

use super::node::lock;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::redis::{Ballot, SentVote};
use crate::store::{InFlight, LeaseSpec};

/// Of how many names the last fence is remembered, but for those of the last second.
const NAMES_MAX: usize = 10_000;
const RECENT_US: u64 = 1_000_000;

/// How many leases are remembered before those that have ended are looked for: a lease that was
/// given away is never released here.
const LEASES_MIN: usize = 1_024;

#[derive(Default)]
pub(super) struct Grants {
    leases: Mutex<GrantedLeases>,
    /// The greatest fence that any node told of, by name: so that the next block is above it.
    fences: Mutex<HashMap<LockName, u64>>,
}

#[derive(Default)]
struct GrantedLeases {
    by_id: HashMap<LeaseId, GrantedLease>,
    /// With how many those that have ended are looked for.
    full: usize,
}

impl GrantedLeases {
    /// The grant of a lease, a new one if it is not known.
    fn entry(&mut self, lease: &LeaseId, now: Moment) -> &mut GrantedLease {
        if self.by_id.len() >= self.full.max(LEASES_MIN) {
            self.by_id.retain(|_, grant| grant.ends > Some(now));
            self.full = self.by_id.len() * 2;
        }
        self.by_id.entry(lease.clone()).or_default()
    }
}

/// A lease that a majority granted.
#[derive(Clone, Default)]
pub(super) struct GrantedLease {
    /// When it has ended, unless it is renewed.
    ends: Option<Moment>,
    /// The last of its fences; none for an adopted one until it is known.
    pub(super) last_fence: Option<u64>,
    /// The nodes it may stand on, and behind what a release must travel there.
    pub(super) sent: Vec<(usize, SentVote)>,
    /// Those of them that had not answered when a majority had.
    pub(super) unanswered: Vec<usize>,
    /// Where a question about it got no answer, and may still land.
    pub(super) unknown: Vec<(usize, InFlight)>,
    /// Whether it was offered again to a node that had forgotten it.
    pub(super) repaired: bool,
}

impl Grants {
    pub(super) fn note(
        &self,
        (held, begun): (&LeaseSpec, Moment),
        ballot: Ballot,
        sent: Vec<(usize, SentVote)>,
        unanswered: Vec<usize>,
    ) {
        let mut leases = lock(&self.leases);
        let grant = leases.entry(&held.id, begun);
        grant.ends = Some(begun + held.ttl);
        grant.last_fence = Some(ballot.last());
        // Nodes that voted before and could not be asked now may still have it.
        let is_old = |node: &usize| sent.iter().all(|(new, _)| new != node);
        grant.sent.retain(|(node, _)| is_old(node));
        grant.unanswered.retain(is_old);
        grant.sent.extend(sent);
        grant.unanswered.extend(unanswered);
    }

    /// Takes note of a lease that came from elsewhere.
    pub(super) fn note_adopted(&self, lease: &LeaseSpec, begun: Moment, last_fence: Option<u64>) {
        let mut leases = lock(&self.leases);
        let grant = leases.entry(&lease.id, begun);
        grant.ends = grant.ends.max(Some(begun + lease.ttl));
        grant.last_fence = last_fence;
    }

    pub(super) fn note_renewed(&self, lease: &LeaseSpec, begun: Moment) {
        if let Some(grant) = lock(&self.leases).by_id.get_mut(&lease.id) {
            grant.ends = grant.ends.max(Some(begun + lease.ttl));
        }
    }

    /// Takes note that a question about a lease may still land. False if the lease is no longer
    /// held: then it must be taken back.
    pub(super) fn may_still_run(&self, lease: &LeaseId, node: usize, in_flight: InFlight) -> bool {
        let mut leases = lock(&self.leases);
        let grant = leases.by_id.get_mut(lease);
        grant.is_some_and(|grant| {
            grant.unknown.push((node, in_flight));
            true
        })
    }

    /// The last fence of a lease that is to be offered to a node again, unless it is being
    /// released. From now on its release goes the way of the repair.
    pub(super) fn begin_repair(&self, lease: &LeaseId) -> Option<u64> {
        let mut leases = lock(&self.leases);
        let grant = leases.by_id.get_mut(lease)?;
        grant.repaired = true;
        grant.last_fence
    }

    /// A lease whose release can go the way of its votes: nothing else was ever sent about it.
    pub(super) fn take_plain(&self, lease: &LeaseId) -> Option<GrantedLease> {
        let mut leases = lock(&self.leases);
        let grant = leases.by_id.get(lease)?;
        let plain = !grant.repaired && grant.unknown.is_empty() && !grant.sent.is_empty();
        plain.then(|| leases.by_id.remove(lease)).flatten()
    }

    pub(super) fn put_back(&self, lease: &LeaseId, grant: GrantedLease) {
        lock(&self.leases).by_id.insert(lease.clone(), grant);
    }

    /// The lease is released, or nobody believes in it any more.
    pub(super) fn take(&self, lease: &LeaseId) -> Option<GrantedLease> {
        lock(&self.leases).by_id.remove(lease)
    }

    pub(super) fn saw_fence(&self, name: &LockName, fence: u64) {
        let mut fences = lock(&self.fences);
        if fences.len() >= NAMES_MAX {
            // Only what the clock has passed: the next block of such a name is above it anyway.
            fences.retain(|_, known| *known + RECENT_US >= fence);
        }
        let known = fences.entry(name.clone()).or_default();
        *known = fence.max(*known);
    }

    pub(super) fn greatest_fence(&self, name: &LockName) -> u64 {
        lock(&self.fences).get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Leases that were given away are never released here.
    #[test]
    fn what_has_ended_is_forgotten_and_what_is_renewed_is_kept() {
        let grants = Grants::default();
        let held = |number: usize| LeaseSpec {
            name: LockName::new("n").unwrap(),
            id: LeaseId::new(format!("lease {number}")),
            ttl: Duration::from_secs(1),
            has_meta: false,
            replicas: 0,
            last_fence: None,
        };
        let at = |ms: u64| Moment::from_nanos(1) + Duration::from_millis(ms);
        let kept = held(0);
        grants.note_adopted(&kept, at(0), Some(7));
        for (number, ms) in (1..=LEASES_MIN * 4).zip((1_000..).step_by(1_000)) {
            let now = at(ms);
            grants.note_renewed(&kept, now);
            grants.note_adopted(&held(number), now, None);
        }
        assert!(lock(&grants.leases).by_id.len() <= LEASES_MIN + 1);
        assert_eq!(grants.begin_repair(&kept.id), Some(7));
    }
}
