//! The leases granted to this client, and on which nodes they may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::node::lock;
use super::round_request::RoundRequest;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::redis::SentVote;
use crate::store::{InFlight, LeaseSpec};

/// How many names' last fences are remembered, not counting those of the last second.
const NAMES_MAX: usize = 10_000;
const RECENT_US: u64 = 1_000_000;

/// How many leases are remembered before expired ones are dropped: a detached lease is never
/// released here.
const LEASES_MIN: usize = 1_024;

#[derive(Default)]
pub(super) struct Grants {
    leases: Mutex<GrantedLeases>,
    /// The greatest fence that any node reported, by name, so that the next block is above it.
    fences: Mutex<HashMap<LockName, u64>>,
}

#[derive(Default)]
struct GrantedLeases {
    by_id: HashMap<LeaseId, GrantedLease>,
    /// How many leases trigger the next cleanup.
    full: usize,
}

impl GrantedLeases {
    /// The entry of a lease, new if it is not known.
    fn entry(&mut self, lease: &LeaseId, now: Moment) -> &mut GrantedLease {
        if self.by_id.len() >= self.full.max(LEASES_MIN) {
            self.by_id.retain(|_, grant| grant.ends > Some(now));
            self.full = self.by_id.len() * 2;
        }
        self.by_id.entry(lease.clone()).or_default()
    }
}

/// A vote for a lease that was sent to a node.
#[derive(Clone)]
pub(super) struct NodeVote {
    pub(super) node: usize,
    pub(super) sent: SentVote,
    pub(super) round: Arc<RoundRequest>,
}

/// A lease that a majority granted.
#[derive(Clone, Default)]
pub(super) struct GrantedLease {
    /// When it has expired, unless it is renewed.
    ends: Option<Moment>,
    /// The last of its fences; `None` for an adopted lease until it is known.
    pub(super) last_fence: Option<u64>,
    /// The nodes it may be on, and the requests that a release must follow there.
    pub(super) sent: Vec<NodeVote>,
    /// Nodes where a request about it got no reply, and may still run.
    pub(super) unknown: Vec<(usize, InFlight)>,
    /// Whether it was offered again to a node that had forgotten it.
    pub(super) repaired: bool,
}

impl GrantedLease {
    /// The votes that may still arrive.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &NodeVote> {
        let sent = self.sent.iter();
        sent.filter(|vote| vote.round.may_still_arrive(vote.node))
    }

    /// It is no longer wanted: votes for it that were not sent yet never will be.
    fn end(self) -> Self {
        self.sent.iter().for_each(|vote| vote.round.end());
        self
    }
}

impl Grants {
    pub(super) fn note(
        &self,
        (held, started_at): (&LeaseSpec, Moment),
        round: &Arc<RoundRequest>,
        sent: Vec<(usize, SentVote)>,
    ) {
        let mut leases = lock(&self.leases);
        let grant = leases.entry(&held.id, started_at);
        grant.ends = Some(started_at + held.ttl);
        grant.last_fence = Some(round.ballot().last());
        // An earlier round's votes that were not sent yet would come too late.
        grant.sent.iter().for_each(|vote| vote.round.end());
        // Nodes that voted earlier and could not be asked now may still have it.
        let is_old = |vote: &NodeVote| sent.iter().all(|(new, _)| *new != vote.node);
        grant.sent.retain(is_old);
        grant
            .sent
            .extend(sent.into_iter().map(|(node, sent)| NodeVote {
                node,
                sent,
                round: Arc::clone(round),
            }));
    }

    /// Notes a lease that another client acquired.
    pub(super) fn note_adopted(
        &self,
        lease: &LeaseSpec,
        started_at: Moment,
        last_fence: Option<u64>,
    ) {
        let mut leases = lock(&self.leases);
        let grant = leases.entry(&lease.id, started_at);
        grant.ends = grant.ends.max(Some(started_at + lease.ttl));
        grant.last_fence = last_fence;
    }

    pub(super) fn note_renewed(&self, lease: &LeaseSpec, started_at: Moment) {
        if let Some(grant) = lock(&self.leases).by_id.get_mut(&lease.id) {
            grant.ends = grant.ends.max(Some(started_at + lease.ttl));
        }
    }

    /// Notes that a request about a lease may still run. False if the lease is no longer held: then
    /// it must be released.
    pub(super) fn may_still_run(&self, lease: &LeaseId, node: usize, in_flight: InFlight) -> bool {
        let mut leases = lock(&self.leases);
        let grant = leases.by_id.get_mut(lease);
        grant.is_some_and(|grant| {
            grant.unknown.push((node, in_flight));
            true
        })
    }

    /// The last fence of a lease that is about to be repaired, unless it is being released. From
    /// now on its release must follow the repair.
    pub(super) fn begin_repair(&self, lease: &LeaseId) -> Option<u64> {
        let mut leases = lock(&self.leases);
        let grant = leases.by_id.get_mut(lease)?;
        grant.repaired = true;
        grant.last_fence
    }

    /// A lease whose release can follow its votes on their connections: nothing else was ever sent
    /// about it.
    pub(super) fn take_plain(&self, lease: &LeaseId) -> Option<GrantedLease> {
        let mut leases = lock(&self.leases);
        let grant = leases.by_id.get(lease)?;
        let plain = !grant.repaired && grant.unknown.is_empty() && !grant.sent.is_empty();
        let grant = plain.then(|| leases.by_id.remove(lease)).flatten();
        grant.map(GrantedLease::end)
    }

    pub(super) fn put_back(&self, lease: &LeaseId, grant: GrantedLease) {
        lock(&self.leases).by_id.insert(lease.clone(), grant);
    }

    /// The lease is released, or no longer valid.
    pub(super) fn take(&self, lease: &LeaseId) -> Option<GrantedLease> {
        let grant = lock(&self.leases).by_id.remove(lease);
        grant.map(GrantedLease::end)
    }

    pub(super) fn note_fence(&self, name: &LockName, fence: u64) {
        let mut fences = lock(&self.fences);
        if fences.len() >= NAMES_MAX {
            // Only fences that the clock has passed: the next block of such a name is above them
            // anyway.
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

    /// Detached leases are never released here.
    #[test]
    fn what_has_ended_is_forgotten_and_what_is_renewed_is_kept() {
        let grants = Grants::default();
        let held = |number: usize| {
            let id = LeaseId::new(format!("lease {number}"));
            LeaseSpec::new(LockName::new("n").unwrap(), id, Duration::from_secs(1))
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
