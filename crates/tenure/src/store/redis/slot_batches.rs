//! The requests of one kind in a call, divided into batches: one, or in a cluster one for each slot.

use super::connection::Connection;
use super::fence_counter::FenceCounter;
use super::value::Value;
use super::wire::WireError;

/// Requests that one transaction or one script serves.
pub(super) trait SlotBatch: Sized {
    type Entry;

    /// Requests with different counters cannot share a batch.
    fn counter(entry: &Self::Entry) -> FenceCounter;
    fn new(connection: &Connection, entries: Vec<Self::Entry>) -> Self;
    /// How many requests it has.
    fn len(&self) -> usize;
    /// How many replies it gets.
    fn replies(&self) -> usize;
    fn encode(&self, out: &mut Vec<u8>);
    /// Gives each caller its reply.
    fn finish(self, connection: &Connection, replies: Vec<Value>);
    fn fail(self, error: &WireError);
}

pub(super) struct SlotBatches<T> {
    // Outside of a cluster there is only this one, and no further allocation.
    first: T,
    others: Vec<T>,
}

impl<T: SlotBatch> SlotBatches<T> {
    pub(super) fn new(connection: &Connection, mut entries: Vec<T::Entry>) -> Self {
        let is_one = entries
            .windows(2)
            .all(|pair| T::counter(&pair[0]) == T::counter(&pair[1]));
        if is_one {
            return Self {
                first: T::new(connection, entries),
                others: Vec::new(),
            };
        }
        entries.sort_by_key(T::counter);
        let mut batches = divide(entries, T::counter)
            .into_iter()
            .map(|entries| T::new(connection, entries));
        let first = batches.next();
        Self {
            first: first.unwrap_or_else(|| T::new(connection, Vec::new())),
            others: batches.collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all().map(T::len).sum()
    }

    pub(super) fn replies(&self) -> usize {
        self.all().map(T::replies).sum()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.all().for_each(|batch| batch.encode(out));
    }

    pub(super) fn finish(self, connection: &Connection, replies: Vec<Value>) {
        if self.others.is_empty() {
            return self.first.finish(connection, replies);
        }
        let mut replies = replies.into_iter();
        for batch in [self.first].into_iter().chain(self.others) {
            let own = replies.by_ref().take(batch.replies()).collect();
            batch.finish(connection, own);
        }
    }

    pub(super) fn fail(self, error: &WireError) {
        self.first.fail(error);
        self.others.into_iter().for_each(|batch| batch.fail(error));
    }

    fn all(&self) -> impl Iterator<Item = &T> {
        [&self.first].into_iter().chain(&self.others)
    }
}

/// Divides sorted entries where their keys differ.
fn divide<T, K: PartialEq>(entries: Vec<T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut divided: Vec<Vec<T>> = Vec::new();
    for entry in entries {
        match divided.last_mut() {
            Some(last) if last.first().is_some_and(|it| key(it) == key(&entry)) => last.push(entry),
            _ => divided.push(vec![entry]),
        }
    }
    divided
}
