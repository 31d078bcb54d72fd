//! Semaphores: which lease has which slots, and the machine's steps on them. Pure, as the machine that
//! this is part of.

use std::collections::{BTreeMap, BTreeSet};

use super::latches::Latch;
use super::machine::{Absent, Effect, Machine, MachineReply, micros};
use crate::holder::Slots;
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::{
    Attempt, LeaseSpec, PermitRequest, READERS_SHOWN, Readers, ReleaseReply, offer_duration,
};

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

impl Machine {
    /// Gets permits of a semaphore, if enough are free and nobody is ahead.
    pub(super) fn permit(
        &mut self,
        now_us: u64,
        attempt: &Attempt,
        effects: &mut Vec<Effect>,
    ) -> MachineReply {
        let LeaseSpec { name, id, ttl, .. } = &attempt.held;
        let Some(wish) = attempt.wish.permits() else {
            return MachineReply::OtherLimit(0);
        };
        let holder = self.live(name, now_us).map(|entry| entry.id.clone());
        let phase = self
            .phase(name, now_us)
            .map(|phase| LeaseId::of_phase(phase.fence));
        let latch = self.latches.get(name);
        let latch = latch.filter(|latch| latch.end_us > now_us);
        if let Some(holder) = holder.or(phase).or(latch.map(Latch::key)) {
            return MachineReply::Lock(holder);
        }
        let new = || Permits::new(wish.limit);
        let permits = self.semaphores.entry(name.clone()).or_insert_with(new);
        if permits.limit != wish.limit {
            return MachineReply::OtherLimit(permits.limit);
        }
        permits.drop_ended(now_us);
        let end_us = now_us + micros(*ttl);
        permits.keep(end_us);
        let waits = self.admit(now_us, name, effects);
        let Some(permits) = self.semaphores.get_mut(name) else {
            return MachineReply::OtherLimit(0);
        };
        let is_next = wish.overtakes || waits.first().is_none_or(|first| first == id);
        let fits = is_next && wish.count <= permits.free();
        let held = permits.extend(id, end_us);
        let Some(slots) = held.or_else(|| fits.then(|| permits.take(id, wish.count, end_us)))
        else {
            if attempt.queue {
                permits.wanted.insert(id.clone(), wish);
                self.join_queue(name, id);
            }
            return self
                .busy_semaphore(name, now_us)
                .unwrap_or(MachineReply::OtherLimit(0));
        };
        self.leave_queue(name, id);
        let fence = self.mint(name, now_us, 1);
        MachineReply::Permitted { fence, slots }
    }

    /// Gives free slots to waiters, in order. They have them for as long as an offer lasts. Returns those
    /// that still wait.
    fn admit(&mut self, now_us: u64, name: &LockName, effects: &mut Vec<Effect>) -> Vec<LeaseId> {
        let queue = self.queues.get(name).into_iter().flatten();
        let waiters = queue.filter(|id| id.mode() == Mode::Permit);
        let waiters: Vec<_> = waiters.cloned().collect();
        let mut still = Vec::new();
        for waiter in waiters {
            let Some(permits) = self.semaphores.get_mut(name) else {
                break;
            };
            let one = PermitRequest {
                limit: permits.limit,
                count: 1,
                overtakes: false,
            };
            let wish = permits.wanted.get(&waiter).copied().unwrap_or(one);
            if wish.count > permits.free() || !still.is_empty() && !wish.overtakes {
                still.push(waiter);
                continue;
            }
            let end_us = now_us + micros(offer_duration(&waiter));
            permits.take(&waiter, wish.count, end_us);
            self.leave_queue(name, &waiter);
            effects.push(Effect::Offered {
                name: name.clone(),
                to: waiter,
            });
        }
        still
    }

    /// Changes the limit of a semaphore.
    ///
    /// # Errors
    ///
    /// If the name is that of a lock, who holds it.
    pub(crate) fn resize(
        &mut self,
        now_us: u64,
        name: &LockName,
        limit: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<(), LeaseId> {
        if let MachineReply::Busy { holder, .. } = self.busy(name, now_us)
            && !holder.as_str().is_empty()
        {
            return Err(holder);
        }
        let latch = self.latches.get(name);
        if let Some(latch) = latch.filter(|latch| latch.end_us > now_us) {
            return Err(latch.key());
        }
        let permits = self.semaphores.entry(name.clone());
        let permits = permits.or_insert_with(|| Permits::new(limit));
        permits.limit = limit;
        permits.keep(now_us);
        permits.drop_ended(now_us);
        self.admit(now_us, name, effects);
        Ok(())
    }

    /// That a semaphore has this name, even if none of its permits is in use.
    pub(super) fn busy_semaphore(&mut self, name: &LockName, now_us: u64) -> Option<MachineReply> {
        let permits = self.semaphores.get(name)?;
        let first_us = permits.ends_us().map_or(now_us, |(first, _)| first);
        Some(MachineReply::Busy {
            holder: LeaseId::of_semaphore(permits.limit),
            left_us: first_us.saturating_sub(now_us),
        })
    }

    pub(super) fn renew_permit(&mut self, now_us: u64, lease: &LeaseSpec) -> Result<(), Absent> {
        let taken_by = self.live(&lease.name, now_us).map(|entry| entry.id.clone());
        let permits = self.semaphores.get_mut(&lease.name);
        let extended = permits.and_then(|permits| {
            permits.drop_ended(now_us);
            permits.keep(now_us + micros(lease.ttl));
            permits.extend(&lease.id, now_us + micros(lease.ttl))
        });
        extended.map(drop).ok_or(Absent { taken_by })
    }

    /// Gives permits back, and gives them to the next waiters.
    pub(super) fn release_permit(
        &mut self,
        now_us: u64,
        lease: &LeaseSpec,
        effects: &mut Vec<Effect>,
    ) -> ReleaseReply {
        let name = &lease.name;
        self.leave_queue(name, &lease.id);
        let Some(permits) = self.semaphores.get_mut(name) else {
            return ReleaseReply::NotHeld;
        };
        permits.drop_ended(now_us);
        let was_held = permits.give_back(&lease.id);
        self.admit(now_us, name, effects);
        if was_held {
            ReleaseReply::WasHeld { offered_to: None }
        } else {
            ReleaseReply::NotHeld
        }
    }
}
