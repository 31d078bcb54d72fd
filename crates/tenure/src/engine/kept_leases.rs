//! The leases that this process keeps although no caller holds them, and until when.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::belief::Belief;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

/// How many leases may be noted as asked for. Messages may name leases that are gone, or never were.
const ASKED_MAX: usize = 1_024;

#[derive(Default)]
pub(crate) struct KeptLeases {
    /// A std mutex: never held across an await.
    state: Mutex<State>,
    /// A lease must be let go sooner than any before.
    sooner: Notify,
    hearing: AtomicU8,
}

#[derive(Default)]
struct State {
    by_name: HashMap<LockName, KeptLease>,
    /// The leases that were kept and may be kept again, by when that ends, with their numbers. Not
    /// changed when a lease is used, because it ends at the same time after that.
    by_end: BTreeMap<(Moment, u64), LockName>,
    /// When the earliest is let go, whatever happens.
    alarm: Option<Moment>,
    asked: AskedLeases,
}

/// A lease that is kept, and since when.
#[derive(Clone)]
pub(crate) struct KeptLease {
    pub(super) belief: Arc<Belief>,
    pub(super) since: Moment,
    until: Moment,
}

/// Whether this client hears who wants its leases. Otherwise it keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Hearing {
    NotYet = 0,
    Begun = 1,
    Yes = 2,
}

/// The leases that others have asked for, the latest ones.
#[derive(Default)]
struct AskedLeases {
    ids: HashSet<LeaseId>,
    in_order: VecDeque<LeaseId>,
}

impl KeptLeases {
    /// True for the first caller, which must make this client hear.
    pub(crate) fn begin_to_hear(&self) -> bool {
        self.hearing.load(Ordering::Relaxed) == Hearing::NotYet as u8
            && self.hearing.swap(Hearing::Begun as u8, Ordering::AcqRel) == Hearing::NotYet as u8
    }

    pub(super) fn set_hearing(&self, hearing: Hearing) {
        self.hearing.store(hearing as u8, Ordering::Release);
    }

    pub(crate) fn hears(&self) -> bool {
        self.hearing.load(Ordering::Acquire) == Hearing::Yes as u8
    }

    /// Keeps a lease that its holder has released, unless it was asked for or the client closes.
    /// Asked while locked: a shutdown closes the client first, and then takes what is here.
    pub(super) fn insert(&self, lease: KeptLease, is_closed: impl Fn() -> bool) -> bool {
        let mut state = self.state();
        let belief = &lease.belief;
        // Another lease of the same lock is here only if it was lost.
        let is_other = |kept: &KeptLease| kept.belief.number != belief.number;
        let is_taken = state.by_name.get(&belief.held.name).is_some_and(is_other);
        if is_closed() || is_taken || state.asked.contains(&belief.held.id) {
            return false;
        }
        let (until, name) = (lease.until, belief.held.name.clone());
        let end = (until, belief.number);
        state.by_end.entry(end).or_insert_with(|| name.clone());
        let is_sooner = state.alarm.is_none_or(|alarm| until < alarm);
        if is_sooner {
            state.alarm = Some(until);
        }
        state.by_name.insert(name, lease);
        drop(state);
        if is_sooner {
            self.sooner.notify_one();
        }
        true
    }

    /// Takes the kept lease of a lock out. Only one caller gets it.
    pub(super) fn take(&self, name: &LockName) -> Option<KeptLease> {
        self.state().by_name.remove(name)
    }

    /// Takes a lease out that was just kept; false if it was used or let go meanwhile.
    pub(super) fn take_back(&self, belief: &Arc<Belief>) -> bool {
        let mut state = self.state();
        // Perhaps it is kept again already, after another use with a later fence.
        let is_it = |kept: &KeptLease| Arc::ptr_eq(&kept.belief, belief);
        let found = state.by_name.get(&belief.held.name).is_some_and(is_it);
        found && state.by_name.remove(&belief.held.name).is_some()
    }

    /// Takes this very lease out, if it is still kept.
    pub(crate) fn take_lease(&self, name: &LockName, lease: &LeaseId) -> Option<KeptLease> {
        self.state().take_lease(name, lease)
    }

    /// Takes the lease out that another client asks for. If a caller holds it now, its release will
    /// find that it was asked for.
    pub(super) fn take_asked(&self, name: &LockName, lease: &LeaseId) -> Option<KeptLease> {
        let mut state = self.state();
        let kept = state.take_lease(name, lease);
        if kept.is_none() {
            state.asked.add(lease);
        }
        kept
    }

    /// Takes those out whose time is over, and returns when the next one's is.
    pub(super) fn take_due(&self, now: Moment) -> (Vec<KeptLease>, Option<Moment>) {
        let mut state = self.state();
        let mut due = Vec::new();
        while let Some(entry) = state.by_end.first_entry()
            && entry.key().0 <= now
            && !bug(Bug::KeptTooLong)
        {
            let ((_, number), name) = entry.remove_entry();
            let is_it = |kept: &KeptLease| kept.belief.number == number;
            if state.by_name.get(&name).is_some_and(is_it) {
                due.extend(state.by_name.remove(&name));
            }
        }
        state.alarm = state.by_end.first_key_value().map(|((end, _), _)| *end);
        (due, state.alarm)
    }

    pub(super) fn take_all(&self) -> Vec<KeptLease> {
        let mut state = self.state();
        state.by_name.drain().map(|(_, kept)| kept).collect()
    }

    /// Forgets a lease that is released for good.
    pub(crate) fn forget(&self, belief: &Belief) {
        let Some(end) = belief.keep_ends() else {
            return;
        };
        let mut state = self.state();
        state.asked.remove(&belief.held.id);
        state.by_end.remove(&(end, belief.number));
    }

    /// What is kept at this moment.
    pub(super) fn all(&self) -> Vec<KeptLease> {
        self.state().by_name.values().cloned().collect()
    }

    /// Waits until a lease must be let go sooner than any before.
    pub(super) async fn wait_for_sooner(&self) {
        self.sooner.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_lease(&mut self, name: &LockName, lease: &LeaseId) -> Option<KeptLease> {
        let is_it = |kept: &KeptLease| kept.belief.held.id == *lease;
        let found = self.by_name.get(name).is_some_and(is_it);
        found.then(|| self.by_name.remove(name)).flatten()
    }
}

impl KeptLease {
    pub(super) fn new(belief: &Arc<Belief>, since: Moment, until: Moment) -> Self {
        Self {
            belief: Arc::clone(belief),
            since,
            until,
        }
    }
}

impl AskedLeases {
    fn contains(&self, id: &LeaseId) -> bool {
        !self.ids.is_empty() && self.ids.contains(id)
    }

    fn add(&mut self, id: &LeaseId) {
        if !self.ids.insert(id.clone()) {
            return;
        }
        self.in_order.push_back(id.clone());
        if self.in_order.len() > ASKED_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    fn remove(&mut self, id: &LeaseId) {
        if !self.ids.is_empty() {
            self.ids.remove(id);
        }
    }
}
