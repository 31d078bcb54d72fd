//! The queue of an item: entries by id, and their deliveries.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::entry::{AcceptedTerms, Entry, Wanted};
use crate::gate::clock::time_of;
use crate::item::Terms;
use crate::order::OrderId;

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<(u64, u64), Queued>,
    /// The id of the entry that was queued last; it is never reused.
    last: Option<(u64, u64)>,
    /// The id of the newest entry that was delivered.
    read: Option<(u64, u64)>,
    pending: u64,
}

#[derive(Debug)]
struct Queued {
    entry: Entry,
    /// When it was delivered.
    handed: Option<Instant>,
}

impl Queue {
    pub(super) fn push(
        &mut self,
        item: &str,
        epoch: u64,
        wanted: Wanted,
        terms: &Terms,
        now: u64,
    ) -> OrderId {
        let number = match self.last {
            Some((last_epoch, number)) if last_epoch == epoch => number + 1,
            _ => 0,
        };
        let id = OrderId::new(item, epoch, number);
        // As at the gate on Redis, a withdrawal has none.
        let is_withdrawal = matches!(wanted, Wanted::Withdrawal { .. });
        let entry = Entry {
            id: id.clone(),
            what: Ok(wanted),
            accepted_at: time_of(now),
            terms: (!is_withdrawal).then(|| AcceptedTerms::of(terms)),
            deliveries: 0,
        };
        let queued = Queued {
            entry,
            handed: None,
        };
        self.entries.insert((epoch, number), queued);
        self.last = Some((epoch, number));
        id
    }

    pub(super) fn last(&self) -> Option<(u64, u64)> {
        self.last
    }

    pub(super) fn oldest(&self) -> Option<(u64, u64)> {
        self.entries.keys().next().copied()
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending
    }

    pub(super) fn units(&self) -> u64 {
        let wanted = self.entries.values().map(|queued| &queued.entry.what);
        let units = wanted.map(|what| what.as_ref().map_or(0, Wanted::units));
        units.fold(0, u64::saturating_add)
    }

    /// Entries that were not delivered yet. It does not matter to whom: entries of a dead consumer
    /// are recognized by their age.
    pub(super) fn read(&mut self, count: usize, now: Instant) -> Vec<Entry> {
        let after = self
            .read
            .map_or((0, 0), |(epoch, number)| (epoch, number + 1));
        let mut read = Vec::new();
        for (id, queued) in self.entries.range_mut(after..).take(count) {
            self.read = Some(*id);
            self.pending += 1;
            read.push(queued.hand(now));
        }
        read
    }

    pub(super) fn claim(&mut self, idle: Duration, count: usize, now: Instant) -> Vec<Entry> {
        let idle_enough = |queued: &&mut Queued| {
            let since = queued.handed;
            since.is_some_and(|since| now.saturating_duration_since(since) >= idle)
        };
        let pending = self.entries.values_mut().filter(idle_enough).take(count);
        pending.map(|queued| queued.hand(now)).collect()
    }

    pub(super) fn remove(&mut self, order: &OrderId) -> Option<Entry> {
        let queued = self.entries.remove(&(order.epoch(), order.number()))?;
        if queued.handed.is_some() {
            self.pending -= 1;
        }
        Some(queued.entry)
    }

    pub(super) fn find(&self, order: &OrderId) -> Option<Entry> {
        let queued = self.entries.get(&(order.epoch(), order.number()))?;
        Some(queued.entry.clone())
    }
}

impl Queued {
    fn hand(&mut self, now: Instant) -> Entry {
        self.handed = Some(now);
        self.entry.deliveries += 1;
        self.entry.clone()
    }
}
