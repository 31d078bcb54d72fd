//! Leases that this client detached. Its record keeps listing them until they expire: no other
//! client would, and a lock that no record names does not appear in listings.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::belief::Belief;
use crate::lease::{Fence, Lease, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;

/// How many are remembered. Further ones are held as well, but not listed.
const REMEMBERED_MAX: usize = 10_000;
/// How long a lease stays listed after its local deadline. The store knows when it really ends.
const SLACK: Duration = Duration::from_secs(1);
/// The minimum time between two cleanups.
const SEARCH_PACE: Duration = Duration::from_millis(100);

/// The leases, by lock: a new lease on a lock proves that the earlier one has ended.
#[derive(Debug, Default)]
pub(crate) struct DetachedLeases {
    state: Mutex<DetachedState>,
}

#[derive(Debug, Default)]
struct DetachedState {
    leases: HashMap<LockName, DetachedLease>,
    searched_at: Option<Moment>,
}

/// A detached lease.
#[derive(Clone, Debug)]
pub(crate) struct DetachedLease {
    pub(crate) id: LeaseId,
    pub(crate) fence: Fence,
    pub(crate) ttl: Duration,
    pub(crate) has_meta: bool,
    pub(crate) since: Moment,
    /// When it has expired, unless another client renews it.
    pub(crate) ends_at: Moment,
}

impl DetachedLeases {
    /// Adds a lease that its holder detaches now.
    pub(crate) fn add(&self, belief: &Belief, now: Moment) {
        let detached = DetachedLease {
            id: belief.held.id.clone(),
            fence: belief.fence,
            ttl: belief.held.ttl,
            has_meta: belief.held.has_meta,
            since: belief.acquired_at,
            ends_at: belief.deadline() + SLACK,
        };
        self.state().insert(belief.held.name.clone(), detached, now);
    }

    /// Notes that a detached lease was renewed with `ttl` and is valid until then. This client need
    /// not be the one that detached it.
    pub(crate) fn renewed(&self, lease: &Lease, ttl: Duration, until: Moment, now: Moment) {
        let mut state = self.state();
        let known = state.leases.get_mut(&lease.name);
        if let Some(known) = known.filter(|known| known.id == lease.id) {
            known.ttl = ttl;
            known.ends_at = until + SLACK;
            return;
        }
        let detached = DetachedLease {
            id: lease.id.clone(),
            fence: lease.fence,
            ttl,
            has_meta: true,
            since: now,
            ends_at: until + SLACK,
        };
        state.insert(lease.name.clone(), detached, now);
    }

    /// Removes a lease that was released or adopted, and returns what was known about it.
    pub(crate) fn remove(&self, name: &LockName, id: &LeaseId) -> Option<DetachedLease> {
        let mut state = self.state();
        let is_it = state.leases.get(name).is_some_and(|known| known.id == *id);
        is_it.then(|| state.leases.remove(name))?
    }

    /// The leases that have not expired.
    pub(crate) fn all(&self, now: Moment) -> Vec<(LockName, DetachedLease)> {
        let mut state = self.state();
        state.leases.retain(|_, lease| now < lease.ends_at);
        let leases = state.leases.iter();
        leases
            .map(|(name, lease)| (name.clone(), lease.clone()))
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().leases.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, DetachedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DetachedState {
    fn insert(&mut self, name: LockName, lease: DetachedLease, now: Moment) {
        let full = |state: &Self| state.leases.len() >= REMEMBERED_MAX;
        let is_new = !self.leases.contains_key(&name);
        let may_search = self.searched_at.is_none_or(|at| now >= at + SEARCH_PACE);
        if is_new && full(self) && may_search {
            self.searched_at = Some(now);
            self.leases.retain(|_, lease| now < lease.ends_at);
        }
        if !is_new || !full(self) {
            self.leases.insert(name, lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, number: u64) -> Lease {
        Lease {
            name: LockName::new(name).unwrap(),
            id: LeaseId::new(format!("lease {number}")),
            fence: Fence::new(number),
            ttl: Duration::from_secs(10),
            replicas: 0,
            deadline: None,
        }
    }

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_lease_is_spoken_of_until_it_ends_or_is_released() {
        let (detached, start) = (DetachedLeases::default(), Moment::from_nanos(1));
        let (one, other) = (lease("a", 1), lease("b", 2));
        detached.renewed(&one, TTL, start + TTL, start);
        detached.renewed(&other, TTL, start + TTL, start);
        assert!(
            detached.remove(&one.name, &other.id).is_none(),
            "another's id"
        );
        assert!(detached.remove(&one.name, &one.id).is_some());
        assert_eq!(detached.all(start).len(), 1);
        detached.renewed(&other, TTL, start + TTL * 3, start + TTL);
        assert_eq!(detached.all(start + TTL * 2).len(), 1, "renewed");
        assert!(detached.all(start + TTL * 4).is_empty());
        assert!(detached.is_empty());
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let (detached, start) = (DetachedLeases::default(), Moment::from_nanos(1));
        let count = u64::try_from(REMEMBERED_MAX).unwrap() + 5;
        for number in 0..count {
            let lease = lease(&format!("lock {number}"), number);
            detached.renewed(&lease, TTL, start + TTL, start);
        }
        assert_eq!(detached.all(start).len(), REMEMBERED_MAX);
        // Expired leases make room again.
        let later = start + TTL * 2;
        detached.renewed(&lease("another", count), TTL, later + TTL, later);
        assert_eq!(detached.all(later).len(), 1);
    }
}
