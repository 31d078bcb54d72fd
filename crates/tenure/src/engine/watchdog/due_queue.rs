//! All tracked leases of a client, and when each needs something next.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::sync::oneshot;

use super::tracked_lease::{DueTask, TrackedLease, WATCH_AFTER};
use crate::moment::Moment;
use crate::name::LockName;

/// The tracked leases, ordered by what is due first.
#[derive(Default)]
pub(super) struct DueQueue {
    /// By number, which is random: not in order of time.
    pub(super) leases: BTreeMap<u64, TrackedLease>,
    pub(super) by_name: HashMap<LockName, LeasesOfName>,
    /// When each lease needs something next, earliest first.
    pub(super) by_due_time: BTreeSet<(Moment, u64)>,
    /// When the watchdog wakes up next, whatever happens. It need not be woken for anything due
    /// later: most leases are gone by then.
    pub(super) asleep_until: Option<Moment>,
    /// Whether a lease was added since the watchdog last ran.
    lease_added: bool,
}

/// The numbers of the leases with one name. Usually one; a second while the guard of a lost one still
/// lives.
pub(super) struct LeasesOfName {
    one: u64,
    others: Vec<u64>,
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
        let name = lease.belief.held.name.clone();
        match self.by_name.entry(name) {
            Entry::Vacant(none) => drop(none.insert(LeasesOfName::new(number))),
            Entry::Occupied(mut some) => some.get_mut().others.push(number),
        }
        self.leases.insert(number, lease);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<TrackedLease> {
        let lease = self.leases.remove(&number)?;
        if let Some(at) = lease.scheduled {
            self.by_due_time.remove(&(at, number));
        }
        let name = &lease.belief.held.name;
        if self
            .by_name
            .get_mut(name)
            .is_some_and(|of_name| !of_name.remove(number))
        {
            self.by_name.remove(name);
        }
        Some(lease)
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
            std::mem::take(&mut lease.waiting)
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

impl LeasesOfName {
    fn new(number: u64) -> Self {
        Self {
            one: number,
            others: Vec::new(),
        }
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        let one = std::iter::once(self.one);
        one.chain(self.others.iter().copied()).collect()
    }

    /// Removes a number, and returns whether there are others.
    fn remove(&mut self, number: u64) -> bool {
        if self.one != number {
            self.others.retain(|other| *other != number);
            return true;
        }
        match self.others.pop() {
            Some(other) => {
                self.one = other;
                true
            }
            None => false,
        }
    }
}
