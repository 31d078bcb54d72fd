//! The leases that this instance granted: how long each is held, and which expire.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::{Fence, Lease, LeaseId};

use super::metrics::Meters;

/// How many are remembered. More are served, but not counted.
const REMEMBERED_MAX: usize = 100_000;

/// By lease id.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    given: Mutex<HashMap<LeaseId, Given>>,
}

/// A lease that this instance granted.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: String,
    fence: Fence,
    pub(crate) since: Instant,
    ttl: Duration,
    pub(crate) ends: Instant,
}

/// The length of the last grant or renewal, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) ttl: Duration,
    pub(crate) ends: Instant,
}

impl Leases {
    pub(crate) fn granted(&self, lease: &Lease, meters: &Meters) {
        let now = Instant::now();
        let given = Given {
            name: lease.name().to_string(),
            fence: lease.fence(),
            since: now,
            ttl: lease.ttl(),
            ends: now + lease.ttl(),
        };
        let mut leases = self.given();
        if leases.len() < REMEMBERED_MAX {
            meters.hold_begins(&given.name);
            leases.insert(lease.id().clone(), given);
        }
    }

    /// The fence of a lease that was granted here, and its term, unless another instance renewed
    /// it.
    pub(crate) fn find(&self, name: &str, id: &LeaseId) -> Option<(Fence, Term)> {
        let given = self.given();
        let given = given.get(id).filter(|given| given.name == name)?;
        let Given { ttl, ends, .. } = *given;
        Some((given.fence, Term { ttl, ends }))
    }

    pub(crate) fn renewed(&self, id: &LeaseId, ttl: Duration) {
        if let Some(given) = self.given().get_mut(id) {
            given.ttl = ttl;
            given.ends = Instant::now() + ttl;
        }
    }

    /// Another instance renewed the lease; it lasts this long.
    pub(crate) fn goes_on(&self, id: &LeaseId, left: Duration) {
        if let Some(given) = self.given().get_mut(id) {
            given.ends = Instant::now() + left;
        }
    }

    /// Removes a lease that has ended; returns how long it was held, if it was granted here.
    pub(crate) fn ended(&self, name: &str, id: &LeaseId, meters: &Meters) -> Option<Duration> {
        let mut leases = self.given();
        // A request with another lock name means another lease, which does not exist.
        leases.get(id).filter(|given| given.name == name)?;
        let given = leases.remove(id)?;
        drop(leases);
        let held = given.since.elapsed();
        meters.hold_ends(&given.name, held);
        Some(held)
    }

    /// The leases that should have ended by now.
    pub(crate) fn due(&self, now: Instant) -> Vec<(LeaseId, Given)> {
        let given = self.given();
        let due = given.iter().filter(|(_, given)| given.ends <= now);
        due.map(|(id, given)| (id.clone(), given.clone())).collect()
    }

    fn given(&self) -> MutexGuard<'_, HashMap<LeaseId, Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
