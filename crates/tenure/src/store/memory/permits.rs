//! The permits of one semaphore: which lease has which slots. Pure, as the machine that it is part of.

use std::collections::{BTreeMap, BTreeSet};

use crate::holder::Slots;
use crate::lease::LeaseId;
use crate::store::{PermitRequest, READERS_SHOWN, Readers};

#[derive(Debug)]
pub(super) struct Permits {
    pub(super) limit: u32,
    leases: BTreeMap<LeaseId, PermitLease>,
    /// How many slots were ever given out, and which of those were given back.
    opened: u32,
    unused: BTreeSet<u32>,
    /// What each waiter wants.
    pub(super) wanted: BTreeMap<LeaseId, PermitRequest>,
    /// Until when the limit is remembered.
    pub(super) kept_until_us: u64,
}

#[derive(Debug)]
struct PermitLease {
    slots: Slots,
    end_us: u64,
}

impl Permits {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit,
            leases: BTreeMap::new(),
            opened: 0,
            unused: BTreeSet::new(),
            wanted: BTreeMap::new(),
            kept_until_us: 0,
        }
    }

    /// Remembers the limit for a day after this time.
    pub(super) fn keep(&mut self, end_us: u64) {
        const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
        self.kept_until_us = self.kept_until_us.max(end_us.saturating_add(DAY_US));
    }

    pub(super) fn drop_ended(&mut self, now_us: u64) {
        let ended =
            |(id, lease): (&LeaseId, &PermitLease)| (lease.end_us <= now_us).then(|| id.clone());
        let ended: Vec<_> = self.leases.iter().filter_map(ended).collect();
        for id in ended {
            self.give_back(&id);
        }
    }

    /// Gives the slots of a lease back. True if it had any.
    pub(super) fn give_back(&mut self, id: &LeaseId) -> bool {
        let lease = self.leases.remove(id);
        let had = lease.is_some();
        self.unused.extend(lease.iter().flat_map(|it| &it.slots));
        if self.leases.is_empty() {
            // The slots begin anew.
            self.opened = 0;
            self.unused.clear();
        }
        had
    }

    /// How many slots are free.
    pub(super) fn free(&self) -> u32 {
        let unused = u32::try_from(self.unused.len()).unwrap_or(u32::MAX);
        self.limit.saturating_sub(self.opened - unused)
    }

    /// Gives this lease the lowest free slots.
    pub(super) fn take(&mut self, id: &LeaseId, count: u32, end_us: u64) -> Slots {
        let next = |_| {
            self.unused.pop_first().unwrap_or_else(|| {
                self.opened += 1;
                self.opened - 1
            })
        };
        let slots: Slots = (0..count).map(next).collect();
        let lease = PermitLease {
            slots: slots.clone(),
            end_us,
        };
        self.leases.insert(id.clone(), lease);
        slots
    }

    /// Extends a lease, and returns its slots. `None` if there is no such lease.
    pub(super) fn extend(&mut self, id: &LeaseId, end_us: u64) -> Option<Slots> {
        let lease = self.leases.get_mut(id)?;
        lease.end_us = end_us;
        Some(lease.slots.clone())
    }

    /// When the first lease ends, and the last.
    pub(super) fn ends_us(&self) -> Option<(u64, u64)> {
        let ends = || self.leases.values().map(|lease| lease.end_us);
        ends().min().zip(ends().max())
    }

    pub(super) fn readers(&self) -> Readers {
        let mut by_end: Vec<_> = self.leases.iter().collect();
        by_end.sort_by_key(|(id, lease)| (std::cmp::Reverse(lease.end_us), *id));
        let shown = || by_end.iter().take(READERS_SHOWN);
        Readers {
            count: self.leases.len() as u64,
            shown: shown().map(|(id, _)| (*id).clone()).collect(),
            slots: shown()
                .map(|(id, lease)| ((*id).clone(), lease.slots.clone()))
                .collect(),
        }
    }
}
