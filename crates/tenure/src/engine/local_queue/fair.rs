//! Callers that are served strictly in order: each has a queue and a place in the store's queue of its
//! own, so that the store decides who is next.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{LocalQueue, QueueMessage};
use crate::lease::{ClientId, LeaseId};
use crate::name::LockName;

/// How many of the first are told what happens to the lock. The others would only wake up: a message to
/// each of ten thousand callers would cost more than the hand-over.
const TOLD: usize = 4;

/// The queues of these callers, by name and then by the number of the caller.
#[derive(Default)]
pub(super) struct FairQueues {
    by_name: HashMap<LockName, BTreeMap<u64, Arc<LocalQueue>>>,
}

impl FairQueues {
    pub(super) fn insert(&mut self, name: &LockName, number: u64, queue: &Arc<LocalQueue>) {
        let of_name = self.by_name.entry(name.clone()).or_default();
        of_name.insert(number, Arc::clone(queue));
    }

    /// Removes the queue of a caller, unless that still waits: its task may run before it has joined.
    pub(super) fn close(&mut self, name: &LockName, number: u64) -> bool {
        let Some(of_name) = self.by_name.get_mut(name) else {
            return true;
        };
        let waits = |queue: &Arc<LocalQueue>| queue.waiters().len() > 0;
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
        let mut of_name = self.of_name(name);
        let before = |(came, _): (&u64, _)| number.is_none_or(|number| *came < number);
        of_name.next().is_some_and(before)
    }

    /// All queues with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&LockName, &Arc<LocalQueue>)> {
        self.by_name
            .iter()
            .flat_map(move |(name, queues)| queues.values().map(move |queue| (name, queue)))
    }

    /// Sends a message to each of those who wait for the name.
    pub(super) fn tell_all(&self, name: &LockName, message: impl Fn() -> QueueMessage) {
        for (_, queue) in self.of_name(name) {
            queue.send(message());
        }
    }

    /// Sends a message to the first of those who wait for the name.
    pub(super) fn tell_first(&self, name: &LockName, message: impl Fn() -> QueueMessage) {
        for (_, queue) in self.of_name(name).take(TOLD) {
            queue.send(message());
        }
    }

    /// Sends a message about a place of this client to the caller that has it. False if none has.
    pub(super) fn tell(&self, name: &LockName, place: &LeaseId, message: QueueMessage) -> bool {
        // The next is nearly always among the first.
        let mut queues = self.of_name(name).map(|(_, queue)| queue);
        let owner = queues.find(|queue| queue.waiters().queued_as.as_ref() == Some(place));
        let Some(owner) = owner else { return false };
        owner.send(message);
        true
    }

    /// Whether a place may be that of a caller here.
    pub(super) fn may_have(&self, name: &LockName, place: &LeaseId, client: ClientId) -> bool {
        self.by_name.contains_key(name) && place.client() == Some(client)
    }

    fn of_name(&self, name: &LockName) -> impl Iterator<Item = (&u64, &Arc<LocalQueue>)> {
        self.by_name.get(name).into_iter().flatten()
    }
}
