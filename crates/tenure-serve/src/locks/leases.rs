//! The leases that were given here: how long each is held, and which end without a word.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::{Fence, Lease, LeaseId};

use super::metrics::Meters;
use crate::app::AppState;

/// How many are remembered. Those on top are served all the same, but not counted.
const REMEMBERED_MAX: usize = 100_000;
/// Leases that were shorter than this may have ended before the board could see them.
const SEEN_AFTER: Duration = Duration::from_secs(2);

/// By id of the lease.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    given: Mutex<HashMap<LeaseId, Given>>,
}

#[derive(Clone, Debug)]
struct Given {
    name: String,
    fence: Fence,
    since: Instant,
    ttl: Duration,
    ends: Instant,
}

/// How long a lease was given for last, and when it ends.
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

    /// The fence of a lease that was given here, and its term, unless another instance renewed it.
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

    /// A lease was renewed elsewhere, and lasts for so long.
    fn goes_on(&self, id: &LeaseId, left: Duration) {
        if let Some(given) = self.given().get_mut(id) {
            given.ends = Instant::now() + left;
        }
    }

    /// Forgets a lease that has ended; how long it was held, if it was given here.
    pub(crate) fn ended(&self, name: &str, id: &LeaseId, meters: &Meters) -> Option<Duration> {
        let mut leases = self.given();
        // Whoever asks under another name speaks of another lease, which there never was.
        leases.get(id).filter(|given| given.name == name)?;
        let given = leases.remove(id)?;
        drop(leases);
        let held = given.since.elapsed();
        meters.hold_ends(&given.name, held);
        Some(held)
    }

    /// Those that should have ended by now.
    fn due(&self, now: Instant) -> Vec<(LeaseId, Given)> {
        let given = self.given();
        let due = given.iter().filter(|(_, given)| given.ends <= now);
        due.map(|(id, given)| (id.clone(), given.clone())).collect()
    }

    fn given(&self) -> MutexGuard<'_, HashMap<LeaseId, Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts leases as lost that ran out. One that another instance renewed goes on, and one that another
/// instance released was not lost: the board has seen which.
pub(crate) fn sweep(app: &AppState) {
    let (leases, meters) = (&app.desk.leases, &app.desk.meters);
    for (id, given) in leases.due(Instant::now()) {
        let left = app.board.left_of(&given.name, id.as_str());
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            leases.goes_on(&id, left);
            continue;
        }
        let is_lost = left.is_some() || given.ends - given.since < SEEN_AFTER;
        let held = leases.ended(&given.name, &id, meters);
        if is_lost {
            meters.lost(&given.name, "expired");
            app.stats.lost(held);
        }
    }
}
