//! All tracked leases of a client, and when each needs something next.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use tokio::sync::oneshot;

use super::tracked_lease::{DueTask, TrackedLease, WATCH_AFTER};
use crate::moment::Moment;
use crate::name::LockName;

/// The tracked leases, ordered by what is due first.
#[derive(Default)]
pub(super) struct DueQueue {
    /// By number, which is random: not in order of time.
    pub(super) leases: BTreeMap<u64, TrackedLease>,
    /// The hash of each lease's name, and its number. Smaller than a map by name, and a client may
    /// have a million leases.
    by_name: BTreeSet<(u64, u64)>,
    name_hasher: RandomState,
    /// When each lease needs something next, earliest first.
    pub(super) by_due_time: BTreeSet<(Moment, u64)>,
    /// When the watchdog wakes up next, whatever happens. It need not be woken for anything due
    /// later: most leases are gone by then.
    pub(super) asleep_until: Option<Moment>,
    /// Whether a lease was added since the watchdog last ran.
    lease_added: bool,
}

/// What to do after the schedule is unlocked.
#[derive(Default)]
pub(super) struct Due {
    pub(super) tasks: Vec<DueTask>,
    /// Callers that need not wait any longer.
    pub(super) answered: Vec<oneshot::Sender<()>>,
}

impl DueQueue {
    /// The numbers of the leases that were granted first, at most this many, in no order.
    pub(super) fn oldest(&self, most: usize) -> Vec<u64> {
        let granted = |(number, lease): (&u64, &TrackedLease)| (lease.belief.acquired_at, *number);
        let mut by_age: Vec<(Moment, u64)> = self.leases.iter().map(granted).collect();
        if by_age.len() > most {
            by_age.select_nth_unstable(most);
            by_age.truncate(most);
        }
        by_age.into_iter().map(|(_, number)| number).collect()
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<Moment> {
        self.by_due_time.first().map(|(at, _)| *at)
    }

    /// Sets when the watchdog wakes up next. While leases come and go quickly, that is soon: with a
    /// late timer, or none, every new lease would have to wake it.
    pub(super) fn fall_asleep(&mut self, now: Moment) -> Option<Moment> {
        let lease_added = std::mem::take(&mut self.lease_added);
        let soon = lease_added.then(|| now + WATCH_AFTER);
        self.asleep_until = self.next().into_iter().chain(soon).min();
        self.asleep_until
    }

    /// What is due by now, earliest first.
    pub(super) fn due(&mut self, now: Moment) -> Due {
        let mut due = Due::default();
        while let Some(&(at, number)) = self.by_due_time.first()
            && at <= now
        {
            let answered = self.update(number, |lease| lease.begin(now, &mut due.tasks));
            due.answered.extend(answered);
        }
        due
    }

    pub(super) fn insert(&mut self, mut lease: TrackedLease) {
        let number = lease.belief.number;
        self.lease_added = true;
        lease.scheduled = lease.next();
        self.by_due_time
            .extend(lease.scheduled.map(|at| (at, number)));
        let name = self.hash(&lease.belief.held.name);
        self.by_name.insert((name, number));
        self.leases.insert(number, lease);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<TrackedLease> {
        let lease = self.leases.remove(&number)?;
        if let Some(at) = lease.scheduled {
            self.by_due_time.remove(&(at, number));
        }
        let name = self.hash(&lease.belief.held.name);
        self.by_name.remove(&(name, number));
        Some(lease)
    }

    /// The numbers of the leases with this name. Usually one; a second while the guard of a lost one
    /// still lives.
    pub(super) fn with_name(&self, name: &LockName) -> impl Iterator<Item = u64> {
        let hash = self.hash(name);
        let alike = self.by_name.range((hash, 0)..=(hash, u64::MAX));
        let numbers = alike.map(|(_, number)| *number);
        numbers.filter(|number| {
            let lease = self.leases.get(number);
            lease.is_some_and(|lease| lease.belief.held.name == *name)
        })
    }

    fn hash(&self, name: &LockName) -> u64 {
        self.name_hasher.hash_one(name)
    }

    /// Changes a lease and its place in the schedule. Returns the callers that need not wait any
    /// longer: the renewal was tried, or never will be.
    pub(super) fn update(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut TrackedLease),
    ) -> Vec<oneshot::Sender<()>> {
        let Some(lease) = self.leases.get_mut(&number) else {
            return Vec::new();
        };
        let before = lease.scheduled;
        change(lease);
        lease.scheduled = lease.next();
        let answered = if std::mem::take(&mut lease.renewal_tried) || lease.scheduled.is_none() {
            lease.take_waiting()
        } else {
            Vec::new()
        };
        if lease.scheduled != before {
            let after = lease.scheduled;
            before.map(|at| self.by_due_time.remove(&(at, number)));
            self.by_due_time.extend(after.map(|at| (at, number)));
        }
        answered
    }
}
