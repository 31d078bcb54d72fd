//! Callers that are served strictly in order: each has a queue and a place in the store's queue of its
//! own, so that the store decides who is next.

use std::collections::{BTreeMap, HashMap};

use crate::name::LockName;

/// The queues of these callers, by name and then by the number of the caller, so in order of arrival.
pub(super) struct FairQueues<Q> {
    by_name: HashMap<LockName, BTreeMap<u64, Q>>,
}

impl<Q> Default for FairQueues<Q> {
    fn default() -> Self {
        Self {
            by_name: HashMap::new(),
        }
    }
}

impl<Q> FairQueues<Q> {
    pub(super) fn insert(&mut self, name: &LockName, number: u64, queue: Q) {
        let of_name = self.by_name.entry(name.clone()).or_default();
        of_name.insert(number, queue);
    }

    /// Removes the queue of a caller, unless that still waits: its task may run before it has joined.
    pub(super) fn close(
        &mut self,
        name: &LockName,
        number: u64,
        waits: impl Fn(&Q) -> bool,
    ) -> bool {
        let Some(of_name) = self.by_name.get_mut(name) else {
            return true;
        };
        if of_name.get(&number).is_some_and(waits) {
            return false;
        }
        of_name.remove(&number);
        if of_name.is_empty() {
            self.by_name.remove(name);
        }
        true
    }

    /// Whether a caller waits for the name, and came before this number.
    pub(super) fn has_before(&self, name: &LockName, number: Option<u64>) -> bool {
        let of_name = self.by_name.get(name);
        let first = of_name.and_then(|queues| queues.keys().next());
        first.is_some_and(|came| number.is_none_or(|number| *came < number))
    }

    /// All queues with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&LockName, &Q)> {
        let of_name = self.by_name.iter();
        of_name.flat_map(|(name, queues)| queues.values().map(move |queue| (name, queue)))
    }

    /// The queues for a name.
    pub(super) fn of_name(&self, name: &LockName) -> impl Iterator<Item = &Q> {
        let queues = self.by_name.get(name).into_iter();
        queues.flat_map(BTreeMap::values)
    }
}
