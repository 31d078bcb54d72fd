//! Latches: which parties have arrived, and the machine's steps on them. Pure, as the machine that this is
//! part of.

use std::collections::BTreeSet;

use super::machine::{Effect, Machine, MachineReply, micros};
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::{Arrival, LatchReply};

#[derive(Debug)]
pub(super) struct Latch {
    need: u32,
    /// Those that have arrived, until it opens.
    parties: BTreeSet<String>,
    is_open: bool,
    pub(super) end_us: u64,
}

impl Latch {
    fn arrived(&self) -> u32 {
        if self.is_open {
            return self.need;
        }
        u32::try_from(self.parties.len()).unwrap_or(u32::MAX)
    }

    /// What its key holds.
    pub(super) fn key(&self) -> LeaseId {
        LeaseId::of_latch(self.need, self.is_open)
    }
}

impl Machine {
    /// That a lock or a semaphore has this name; with an empty holder if none does.
    fn busy_or_semaphore(&mut self, now_us: u64, name: &LockName) -> MachineReply {
        let semaphore = self.busy_semaphore(name, now_us);
        semaphore.unwrap_or_else(|| self.busy(name, now_us))
    }

    /// A party arrives at a latch; or, without a party, a look at it.
    pub(crate) fn arrive(
        &mut self,
        now_us: u64,
        arrival: &Arrival,
        effects: &mut Vec<Effect>,
    ) -> LatchReply {
        let name = &arrival.name;
        self.latches.retain(|_, latch| latch.end_us > now_us);
        if !self.latches.contains_key(name) {
            if let MachineReply::Busy { holder, .. } = self.busy_or_semaphore(now_us, name)
                && !holder.as_str().is_empty()
            {
                return LatchReply::Lock(holder);
            }
            if arrival.party.is_none() {
                return LatchReply::Closed { arrived: 0 };
            }
        }
        let end_us = now_us + micros(arrival.remember);
        let latch = self.latches.entry(name.clone()).or_insert_with(|| Latch {
            need: arrival.need,
            parties: BTreeSet::new(),
            is_open: false,
            end_us,
        });
        if latch.need != arrival.need {
            return LatchReply::OtherNeed(latch.need);
        }
        let arriving = arrival.party.as_ref().filter(|_| !latch.is_open);
        if let Some(party) = arriving {
            latch.parties.insert(party.clone());
            latch.end_us = end_us;
            latch.is_open = latch.arrived() >= latch.need;
        }
        let (arrived, is_open) = (latch.arrived(), latch.is_open);
        if !is_open {
            return LatchReply::Closed { arrived };
        }
        if arriving.is_some() {
            latch.parties.clear();
            self.tell_observers(name, effects);
        }
        LatchReply::Open
    }
}
