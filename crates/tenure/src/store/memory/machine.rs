//! The lock as a pure state machine: no clock, no randomness, no waiting. Time is an argument, in
//! microseconds of the store's own clock. The memory store is built on it, and tests compare the
//! other stores with it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::leader::{elected_meta, is_candidate_meta, proclaim_in, term_of};
use crate::lease::{ClientId, Fence, LeaseId};
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::memory::latches::Latch;
use crate::store::memory::permits::Permits;
use crate::store::memory::runs::RunRecord;
use crate::store::{
    Attempt, FENCE_KEPT, LeaseSpec, LockState, Proclamation, READERS_SHOWN, Readers, Record,
    RecordChange, RecordWritten, ReleaseReply, Slots, Wish, offer_duration,
};

/// After this many calls the machine drops expired entries, so that it does not grow forever.
const CALLS_BETWEEN_SWEEPS: u64 = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Machine {
    locks: HashMap<LockName, Entry>,
    /// Locks that readers share. A lock is in one of the two at most.
    phases: HashMap<LockName, Phase>,
    pub(super) semaphores: HashMap<LockName, Permits>,
    pub(super) latches: HashMap<LockName, Latch>,
    /// The last run for each fire time of a schedule, by the name of its lock.
    pub(super) runs: HashMap<LockName, RunRecord>,
    fences: HashMap<LockName, Expiring<u64>>,
    pub(super) queues: HashMap<LockName, VecDeque<LeaseId>>,
    watched: HashSet<LockName>,
    /// The clients that want to know, once, when the holder of a lock or its value changes.
    observers: HashMap<LockName, HashSet<ClientId>>,
    records: HashMap<ClientId, Expiring<BTreeMap<String, String>>>,
    calls: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: LeaseId,
    end_us: u64,
    meta: Arc<BTreeMap<String, String>>,
}

/// Readers that share a lock, all with the same fence.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) fence: Fence,
    /// When the lease of each reader ends.
    readers: BTreeMap<LeaseId, u64>,
}

impl Phase {
    fn end_us(&self) -> u64 {
        self.readers.values().copied().max().unwrap_or(0)
    }

    /// Ends the lease of a reader, or of all if the id is in place of theirs. True if there was one.
    fn end(&mut self, id: &LeaseId) -> bool {
        if *id == LeaseId::of_phase(self.fence) {
            self.readers.clear();
            return true;
        }
        self.readers.remove(id).is_some()
    }
}

#[derive(Debug)]
struct Expiring<T> {
    value: T,
    end_us: u64,
}

/// The reply to an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MachineReply {
    Granted(Fence),
    Busy {
        holder: LeaseId,
        left_us: u64,
    },
    /// Permits of a semaphore were granted.
    Permitted {
        fence: Fence,
        slots: Slots,
    },
    /// The semaphore has another limit.
    OtherLimit(u32),
    /// A permit was wanted of a lock that this holds.
    Lock(LeaseId),
}

/// What the machine wants published.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Offered {
        name: LockName,
        to: LeaseId,
    },
    /// This reader shares the lock, or can do so.
    Admitted {
        name: LockName,
        reader: LeaseId,
    },
    /// A watched lease ended.
    Changed {
        name: LockName,
        lease: LeaseId,
    },
    /// An observed lock changed.
    Observed {
        name: LockName,
        by: ClientId,
    },
}

/// The lease does not exist; another may be in its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) taken_by: Option<LeaseId>,
}

/// Why the mode of a lease was not changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ModeUnchanged {
    Absent(Absent),
    /// Other readers share the lock, or waiters want it.
    Shared {
        readers: u64,
        waiters: u64,
    },
}

impl Machine {
    pub(crate) fn acquire(
        &mut self,
        now_us: u64,
        attempt: &Attempt,
        effects: &mut Vec<Effect>,
    ) -> MachineReply {
        self.count_call(now_us);
        match attempt.held.mode {
            Mode::Exclusive if attempt.wish == Wish::InOrder => {
                self.acquire_in_order(now_us, attempt, effects)
            }
            Mode::Exclusive => self.acquire_alone(now_us, attempt, effects),
            Mode::Shared => self.share(now_us, attempt, effects),
            Mode::Permit => self.permit(now_us, attempt, effects),
        }
    }

    /// Acquires the lock, unless it is free and another waiter is ahead: that one is next.
    fn acquire_in_order(
        &mut self,
        now_us: u64,
        attempt: &Attempt,
        effects: &mut Vec<Effect>,
    ) -> MachineReply {
        let LeaseSpec { name, id, .. } = &attempt.held;
        let is_free = self.live(name, now_us).is_none()
            && self.phase(name, now_us).is_none()
            && self.busy_other_kind(name, now_us).is_none();
        let first = self.queues.get(name).and_then(VecDeque::front);
        if !is_free || first.is_none_or(|first| first == id) {
            let reply = self.acquire_alone(now_us, attempt, effects);
            if matches!(reply, MachineReply::Granted(_)) {
                self.leave_queue(name, id);
            }
            return reply;
        }
        if attempt.queue {
            self.join_queue(name, id);
        }
        self.offer_to_next(now_us, name, effects);
        self.busy(name, now_us)
    }

    fn acquire_alone(
        &mut self,
        now_us: u64,
        attempt: &Attempt,
        effects: &mut Vec<Effect>,
    ) -> MachineReply {
        let LeaseSpec { name, id, ttl, .. } = &attempt.held;
        let end_us = now_us + micros(*ttl);
        let others = self.busy_readers(name, now_us);
        if let Some(busy) = others.or_else(|| self.busy_other_kind(name, now_us)) {
            if attempt.queue {
                self.join_queue(name, id);
            }
            return busy;
        }
        match self.live(name, now_us) {
            Some(entry) if entry.id != *id => {
                let busy = MachineReply::Busy {
                    holder: entry.id.clone(),
                    left_us: entry.end_us - now_us,
                };
                if attempt.queue {
                    self.join_queue(name, id);
                }
                return busy;
            }
            // A repeated attempt, or an accepted offer.
            Some(entry) => {
                entry.end_us = end_us;
                // It keeps the term that it was granted with: an observer may have seen it.
                if is_candidate_meta(&attempt.meta)
                    && let Some(term) = term_of(&entry.meta)
                {
                    return MachineReply::Granted(term);
                }
                if !attempt.meta.is_empty() {
                    entry.meta = Arc::clone(&attempt.meta);
                }
            }
            None => {
                let entry = Entry {
                    id: id.clone(),
                    end_us,
                    meta: Arc::clone(&attempt.meta),
                };
                self.locks.insert(name.clone(), entry);
            }
        }
        if attempt.queue {
            self.leave_queue(name, id);
        }
        let fence = self.mint(name, now_us, attempt.fences);
        if is_candidate_meta(&attempt.meta)
            && let Some(entry) = self.live(name, now_us)
        {
            entry.meta = Arc::new(elected_meta(&attempt.meta, now_us, fence));
        }
        self.tell_observers(name, effects);
        MachineReply::Granted(fence)
    }

    /// Shares the lock with other readers, unless a waiter ahead wants it alone.
    fn share(&mut self, now_us: u64, attempt: &Attempt, effects: &mut Vec<Effect>) -> MachineReply {
        let LeaseSpec { name, id, ttl, .. } = &attempt.held;
        let end_us = now_us + micros(*ttl);
        if let Some(phase) = self.phase(name, now_us)
            && let Some(ends) = phase.readers.get_mut(id)
        {
            *ends = end_us;
            let fence = phase.fence;
            self.leave_queue(name, id);
            return MachineReply::Granted(fence);
        }
        if let Some(busy) = self.busy_other_kind(name, now_us) {
            if attempt.queue {
                self.join_queue(name, id);
            }
            return busy;
        }
        let holder = self.live(name, now_us).map(|entry| entry.id.clone());
        let is_offered = holder.as_ref() == Some(id);
        if !is_offered && (holder.is_some() || self.is_behind_writer(name, id)) {
            if attempt.queue {
                self.join_queue(name, id);
            }
            if holder.is_none() && self.phase(name, now_us).is_none() {
                // The lock is free: the head of the queue is next.
                self.offer_to_next(now_us, name, effects);
            }
            return self.busy(name, now_us);
        }
        self.leave_queue(name, id);
        let admitted = self.readers_first(name);
        if let Some(phase) = self.phase(name, now_us) {
            phase.readers.insert(id.clone(), end_us);
            let fence = phase.fence;
            effects.extend(admitted.into_iter().map(|reader| admission(name, reader)));
            return MachineReply::Granted(fence);
        }
        let reader = (id.clone(), end_us);
        let fence = self.begin_phase(now_us, name, reader, admitted, effects);
        MachineReply::Granted(fence)
    }

    /// Starts a phase with this reader, and with those at the head of the queue, which have an offer.
    fn begin_phase(
        &mut self,
        now_us: u64,
        name: &LockName,
        reader: (LeaseId, u64),
        admitted: Vec<LeaseId>,
        effects: &mut Vec<Effect>,
    ) -> Fence {
        self.locks.remove(name);
        let fence = self.mint(name, now_us, 1);
        let mut readers = BTreeMap::from([reader]);
        for waiter in admitted {
            self.leave_queue(name, &waiter);
            let end_us = now_us + micros(offer_duration(&waiter));
            readers.insert(waiter.clone(), end_us);
            effects.push(admission(name, waiter));
        }
        self.phases.insert(name.clone(), Phase { fence, readers });
        self.tell_observers(name, effects);
        fence
    }

    /// Acquires all of these locks, or none.
    ///
    /// # Errors
    ///
    /// The first lock that is busy, its holder, and how long that one's lease lasts.
    pub(crate) fn acquire_several(
        &mut self,
        now_us: u64,
        attempts: &[Attempt],
        effects: &mut Vec<Effect>,
    ) -> Result<Vec<Fence>, (usize, LeaseId, u64)> {
        for (at, attempt) in attempts.iter().enumerate() {
            let held = &attempt.held;
            if let Some(phase) = self.phase(&held.name, now_us) {
                let left_us = phase.end_us() - now_us;
                return Err((at, LeaseId::of_phase(phase.fence), left_us));
            }
            if let Some(MachineReply::Busy { holder, left_us }) =
                self.busy_other_kind(&held.name, now_us)
            {
                return Err((at, holder, left_us));
            }
            let other = self.live(&held.name, now_us);
            if let Some(other) = other.filter(|entry| entry.id != held.id) {
                return Err((at, other.id.clone(), other.end_us - now_us));
            }
        }
        let mut fences = Vec::with_capacity(attempts.len());
        for (at, attempt) in attempts.iter().enumerate() {
            match self.acquire(now_us, attempt, effects) {
                MachineReply::Granted(fence) => fences.push(fence),
                // Not possible: all were free at this very moment.
                MachineReply::Busy { holder, left_us } => return Err((at, holder, left_us)),
                _ => return Err((at, attempt.held.id.clone(), 0)),
            }
        }
        Ok(fences)
    }

    pub(crate) fn renew(&mut self, now_us: u64, lease: &LeaseSpec) -> Result<(), Absent> {
        self.count_call(now_us);
        if lease.mode == Mode::Shared {
            *self.shared(lease, now_us)? = now_us + micros(lease.ttl);
            return Ok(());
        }
        if lease.mode == Mode::Permit {
            return self.renew_permit(now_us, lease);
        }
        let entry = self.held(lease, now_us)?;
        entry.end_us = now_us + micros(lease.ttl);
        Ok(())
    }

    /// Continues the lease `from` under another id.
    pub(crate) fn adopt(
        &mut self,
        now_us: u64,
        from: &LeaseId,
        lease: &LeaseSpec,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Absent> {
        self.count_call(now_us);
        let before = LeaseSpec {
            id: from.clone(),
            ..lease.clone()
        };
        if lease.mode == Mode::Shared {
            if self.shared(lease, now_us).is_err() {
                self.shared(&before, now_us)?;
            }
            if let Some(phase) = self.phase(&lease.name, now_us) {
                phase.readers.remove(from);
                let end_us = now_us + micros(lease.ttl);
                phase.readers.insert(lease.id.clone(), end_us);
            }
            return Ok(());
        }
        let holder = if self.held(lease, now_us).is_ok() {
            lease
        } else {
            &before
        };
        let entry = self.held(holder, now_us)?;
        entry.id = lease.id.clone();
        entry.end_us = now_us + micros(lease.ttl);
        self.tell_observers(&lease.name, effects);
        Ok(())
    }

    /// Continues the lease `from` in the other mode, under another id and with a new fence.
    pub(crate) fn change_mode(
        &mut self,
        now_us: u64,
        from: &LeaseId,
        lease: &LeaseSpec,
        effects: &mut Vec<Effect>,
    ) -> Result<Fence, ModeUnchanged> {
        self.count_call(now_us);
        let before = LeaseSpec {
            id: from.clone(),
            ..lease.clone()
        };
        match lease.mode {
            Mode::Exclusive => self.upgrade(now_us, &before, lease, effects),
            Mode::Shared => self.downgrade(now_us, &before, lease, effects),
            // Refused before the store is asked.
            Mode::Permit => Err(ModeUnchanged::Absent(Absent { taken_by: None })),
        }
    }

    fn downgrade(
        &mut self,
        now_us: u64,
        before: &LeaseSpec,
        lease: &LeaseSpec,
        effects: &mut Vec<Effect>,
    ) -> Result<Fence, ModeUnchanged> {
        let (name, end_us) = (&lease.name, now_us + micros(lease.ttl));
        if let Some(phase) = self.phase(name, now_us)
            && let Some(ends) = phase.readers.get_mut(&lease.id)
        {
            *ends = end_us;
            return Ok(phase.fence);
        }
        self.held(before, now_us).map_err(ModeUnchanged::Absent)?;
        self.watched.remove(name);
        let admitted = self.readers_first(name);
        Ok(self.begin_phase(now_us, name, (lease.id.clone(), end_us), admitted, effects))
    }

    fn upgrade(
        &mut self,
        now_us: u64,
        before: &LeaseSpec,
        lease: &LeaseSpec,
        effects: &mut Vec<Effect>,
    ) -> Result<Fence, ModeUnchanged> {
        let name = &lease.name;
        let meta = match self.held(lease, now_us) {
            Ok(repeated) => Arc::clone(&repeated.meta),
            Err(_) => self
                .check_sole_reader(now_us, before)
                .map(|()| Arc::default())?,
        };
        self.phases.remove(name);
        let entry = Entry {
            id: lease.id.clone(),
            end_us: now_us + micros(lease.ttl),
            meta,
        };
        self.locks.insert(name.clone(), entry);
        self.tell_observers(name, effects);
        Ok(self.mint(name, now_us, 1))
    }

    fn check_sole_reader(&mut self, now_us: u64, lease: &LeaseSpec) -> Result<(), ModeUnchanged> {
        self.shared(lease, now_us).map_err(ModeUnchanged::Absent)?;
        let phase = self.phase(&lease.name, now_us);
        let readers = phase.map_or(0, |phase| phase.readers.len() as u64 - 1);
        let queue = self.queues.get(&lease.name);
        let waiters = queue.map_or(0, |queue| queue.len() as u64);
        if readers > 0 || waiters > 0 {
            return Err(ModeUnchanged::Shared { readers, waiters });
        }
        Ok(())
    }

    /// Changes the value of a leader, unless a later one is known.
    pub(crate) fn proclaim(
        &mut self,
        now_us: u64,
        proclamation: &Proclamation,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Absent> {
        let Proclamation {
            held,
            term,
            version,
            value,
        } = proclamation;
        let entry = self.held(held, now_us)?;
        let mut meta = entry.meta.as_ref().clone();
        proclaim_in(&mut meta, *term, *version, value);
        entry.meta = Arc::new(meta);
        self.tell_observers(&held.name, effects);
        Ok(())
    }

    /// Who holds the lock; publishes to the client when that changes.
    pub(crate) fn observe(
        &mut self,
        now_us: u64,
        client: ClientId,
        name: &LockName,
    ) -> Option<LockState> {
        let observers = self.observers.entry(name.clone()).or_default();
        observers.insert(client);
        self.inspect(now_us, name)
    }

    /// Checks that the lease exists, and publishes when that changes.
    pub(crate) fn watch(&mut self, now_us: u64, lease: &LeaseSpec) -> Result<(), Absent> {
        self.held(lease, now_us)?;
        self.watched.insert(lease.name.clone());
        Ok(())
    }

    /// Ends the lease, or leaves the queue. The lock is offered to the waiter `to` if that one is in
    /// the queue, otherwise to the first.
    pub(crate) fn release(
        &mut self,
        now_us: u64,
        lease: &LeaseSpec,
        (dequeue, to): (Option<&LeaseId>, Option<&LeaseId>),
        effects: &mut Vec<Effect>,
    ) -> ReleaseReply {
        self.count_call(now_us);
        let has_left = dequeue.is_some_and(|place| self.leave_queue(&lease.name, place));
        if lease.mode == Mode::Permit {
            return self.release_permit(now_us, lease, effects);
        }
        if lease.mode == Mode::Shared && self.held(lease, now_us).is_err() {
            return self.release_reader(now_us, lease, dequeue.is_some(), effects);
        }
        if self.held(lease, now_us).is_err() {
            if self.leave_queue(&lease.name, &lease.id) || has_left {
                self.wake_readers(now_us, &lease.name, effects);
            }
            return ReleaseReply::NotHeld;
        }
        self.locks.remove(&lease.name);
        if self.watched.remove(&lease.name) {
            effects.push(Effect::Changed {
                name: lease.name.clone(),
                lease: lease.id.clone(),
            });
        }
        self.tell_observers(&lease.name, effects);
        if let Some(to) = to {
            self.move_to_front(&lease.name, to);
        }
        let offered_to = self.offer_to_next(now_us, &lease.name, effects);
        ReleaseReply::WasHeld { offered_to }
    }

    /// Ends the lease of a reader. After the last one, the next waiter is offered the lock.
    fn release_reader(
        &mut self,
        now_us: u64,
        lease: &LeaseSpec,
        has_left: bool,
        effects: &mut Vec<Effect>,
    ) -> ReleaseReply {
        let name = &lease.name;
        self.leave_queue(name, &lease.id);
        let had_phase = self.phases.contains_key(name);
        let was_held = self
            .phase(name, now_us)
            .is_some_and(|phase| phase.end(&lease.id));
        let is_over = self.phase(name, now_us).is_none();
        let mut offered_to = None;
        if is_over && had_phase && self.live(name, now_us).is_none() {
            self.tell_observers(name, effects);
            offered_to = self.offer_to_next(now_us, name, effects);
        } else if has_left {
            self.wake_readers(now_us, name, effects);
        }
        if was_held {
            ReleaseReply::WasHeld { offered_to }
        } else {
            ReleaseReply::NotHeld
        }
    }

    /// Passes the lease to a waiter that has waited longer than `place`, or grants it again.
    pub(crate) fn turn(
        &mut self,
        now_us: u64,
        lease: &LeaseSpec,
        fences: u32,
        place: Option<&LeaseId>,
        effects: &mut Vec<Effect>,
    ) -> Result<Fence, ReleaseReply> {
        let first = self.queues.get(&lease.name).and_then(VecDeque::front);
        let ours = first.is_none_or(|first| Some(first) == place);
        if !ours || self.held(lease, now_us).is_err() {
            return Err(self.release(now_us, lease, (None, None), effects));
        }
        if let Some(queue) = self.queues.get_mut(&lease.name) {
            queue.rotate_left(1);
        }
        if let Ok(entry) = self.held(lease, now_us) {
            entry.end_us = now_us + micros(lease.ttl);
        }
        Ok(self.mint(&lease.name, now_us, fences))
    }

    pub(crate) fn inspect(&mut self, now_us: u64, name: &LockName) -> Option<LockState> {
        let fence = Fence::new(self.fences.get(name).map_or(0, |fence| fence.value));
        let latch = self.latches.get(name);
        if let Some(latch) = latch.filter(|latch| latch.end_us > now_us) {
            return Some(LockState {
                id: latch.key(),
                remaining: Some(std::time::Duration::from_micros(latch.end_us - now_us)),
                fence: None,
                meta: BTreeMap::new(),
                readers: Readers::default(),
            });
        }
        if let Some(permits) = self.semaphores.get_mut(name) {
            permits.drop_ended(now_us);
            let (_, last_us) = permits.ends_us()?;
            return Some(LockState {
                id: LeaseId::of_semaphore(permits.limit),
                remaining: Some(std::time::Duration::from_micros(last_us - now_us)),
                fence: None,
                meta: BTreeMap::new(),
                readers: permits.readers(),
            });
        }
        if let Some(phase) = self.phase(name, now_us) {
            return Some(phase.state(now_us));
        }
        let entry = self.live(name, now_us)?;
        Some(LockState {
            id: entry.id.clone(),
            remaining: Some(std::time::Duration::from_micros(entry.end_us - now_us)),
            fence: Some(fence),
            meta: entry.meta.as_ref().clone(),
            readers: Readers::default(),
        })
    }

    /// Forgets who holds a lock, as if that lease had ended.
    #[cfg(test)]
    pub(crate) fn vanish(&mut self, name: &LockName) {
        self.locks.remove(name);
    }

    /// The waiters for a lock, in the order of its queue.
    pub(crate) fn waiters(&self, name: &LockName) -> Vec<LeaseId> {
        let queue = self.queues.get(name).into_iter().flatten();
        queue.cloned().collect()
    }

    pub(crate) fn write_record(
        &mut self,
        now_us: u64,
        client: ClientId,
        change: &RecordChange,
    ) -> RecordWritten {
        self.records.retain(|_, record| record.end_us > now_us);
        if change.ttl.is_zero() {
            self.records.remove(&client);
            return RecordWritten::Yes;
        }
        if change.all {
            self.records.remove(&client);
        } else if !self.records.contains_key(&client) {
            return RecordWritten::Missing;
        }
        let end_us = now_us + micros(change.ttl);
        let record = self.records.entry(client).or_insert_with(|| Expiring {
            value: BTreeMap::new(),
            end_us,
        });
        record.end_us = end_us;
        record.value.extend(change.set.iter().cloned());
        for field in &change.removed {
            record.value.remove(field);
        }
        RecordWritten::Yes
    }

    pub(crate) fn records(&self, now_us: u64, only: Option<ClientId>) -> Vec<Record> {
        self.records
            .iter()
            .filter(|(id, record)| record.end_us > now_us && only.is_none_or(|only| only == **id))
            .map(|(id, record)| (*id, record.value.clone()))
            .collect()
    }

    /// Reserves the lock for the first waiter, for the duration of an offer.
    fn offer_to_next(
        &mut self,
        now_us: u64,
        name: &LockName,
        effects: &mut Vec<Effect>,
    ) -> Option<LeaseId> {
        let queue = self.queues.get_mut(name)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(name);
        }
        let next = next?;
        let entry = Entry {
            id: next.clone(),
            end_us: now_us + micros(offer_duration(&next)),
            meta: Arc::default(),
        };
        self.locks.insert(name.clone(), entry);
        effects.push(Effect::Offered {
            name: name.clone(),
            to: next.clone(),
        });
        Some(next)
    }

    /// Reserves some fences and returns the first.
    pub(super) fn mint(&mut self, name: &LockName, now_us: u64, count: u32) -> Fence {
        let first = (self.last_fence(name, now_us).get() + 1).max(now_us);
        let last = first + u64::from(count) - 1;
        let counter = Expiring {
            value: last,
            end_us: now_us.max(last) + micros(FENCE_KEPT),
        };
        self.fences.insert(name.clone(), counter);
        Fence::new(first)
    }

    fn last_fence(&self, name: &LockName, now_us: u64) -> Fence {
        let counter = self.fences.get(name).filter(|fence| fence.end_us > now_us);
        Fence::new(counter.map_or(0, |fence| fence.value))
    }

    pub(super) fn live(&mut self, name: &LockName, now_us: u64) -> Option<&mut Entry> {
        self.locks
            .get_mut(name)
            .filter(|entry| entry.end_us > now_us)
    }

    /// The phase of a lock that readers share, without those whose lease has ended.
    pub(super) fn phase(&mut self, name: &LockName, now_us: u64) -> Option<&mut Phase> {
        let phase = self.phases.get_mut(name)?;
        phase.readers.retain(|_, end_us| *end_us > now_us);
        if phase.readers.is_empty() {
            self.phases.remove(name);
        }
        self.phases.get_mut(name)
    }

    /// When the lease of this reader ends.
    fn shared(&mut self, lease: &LeaseSpec, now_us: u64) -> Result<&mut u64, Absent> {
        let taken_by = self.live(&lease.name, now_us).map(|entry| entry.id.clone());
        let phase = self.phase(&lease.name, now_us);
        let ends = phase.and_then(|phase| phase.readers.get_mut(&lease.id));
        ends.ok_or(Absent { taken_by })
    }

    /// That the lock is held, alone or by readers.
    pub(super) fn busy(&mut self, name: &LockName, now_us: u64) -> MachineReply {
        if let Some(shared) = self.busy_readers(name, now_us) {
            return shared;
        }
        let entry = self.live(name, now_us);
        let entry = entry.map(|entry| (entry.id.clone(), entry.end_us - now_us));
        let (holder, left_us) = entry.unwrap_or_else(|| (LeaseId::new(""), 0));
        MachineReply::Busy { holder, left_us }
    }

    /// That the name is that of a semaphore or a latch.
    pub(super) fn busy_other_kind(&mut self, name: &LockName, now_us: u64) -> Option<MachineReply> {
        let latch = self.latches.get(name);
        if let Some(latch) = latch.filter(|latch| latch.end_us > now_us) {
            return Some(MachineReply::Busy {
                holder: latch.key(),
                left_us: latch.end_us - now_us,
            });
        }
        self.busy_semaphore(name, now_us)
    }

    fn busy_readers(&mut self, name: &LockName, now_us: u64) -> Option<MachineReply> {
        let phase = self.phase(name, now_us)?;
        Some(MachineReply::Busy {
            holder: LeaseId::of_phase(phase.fence),
            left_us: phase.end_us() - now_us,
        })
    }

    /// Whether a waiter ahead of this reader wants the lock alone.
    fn is_behind_writer(&self, name: &LockName, id: &LeaseId) -> bool {
        let queue = self.queues.get(name).into_iter().flatten();
        let mut ahead = queue.take_while(|waiter| *waiter != id);
        ahead.any(|waiter| waiter.mode() == Mode::Exclusive)
    }

    /// The readers at the head of the queue.
    fn readers_first(&self, name: &LockName) -> Vec<LeaseId> {
        let queue = self.queues.get(name).into_iter().flatten();
        let readers = queue.take_while(|waiter| waiter.mode() == Mode::Shared);
        readers.cloned().collect()
    }

    /// Has the readers at the head of the queue ask again, if the lock is shared.
    fn wake_readers(&mut self, now_us: u64, name: &LockName, effects: &mut Vec<Effect>) {
        if self.phase(name, now_us).is_some() {
            let readers = self.readers_first(name).into_iter();
            effects.extend(readers.map(|reader| admission(name, reader)));
        }
    }

    fn held(&mut self, lease: &LeaseSpec, now_us: u64) -> Result<&mut Entry, Absent> {
        if let Some(phase) = self.phase(&lease.name, now_us) {
            return Err(Absent {
                taken_by: Some(LeaseId::of_phase(phase.fence)),
            });
        }
        match self.live(&lease.name, now_us) {
            Some(entry) if entry.id == lease.id => Ok(entry),
            other => Err(Absent {
                taken_by: other.map(|entry| entry.id.clone()),
            }),
        }
    }

    pub(super) fn join_queue(&mut self, name: &LockName, id: &LeaseId) {
        let queue = self.queues.entry(name.clone()).or_default();
        if !queue.contains(id) {
            queue.push_back(id.clone());
        }
    }

    fn move_to_front(&mut self, name: &LockName, id: &LeaseId) {
        if let Some(queue) = self.queues.get_mut(name)
            && let Some(at) = queue.iter().position(|queued| queued == id)
            && let Some(waiter) = queue.remove(at)
        {
            queue.push_front(waiter);
        }
    }

    pub(super) fn tell_observers(&mut self, name: &LockName, effects: &mut Vec<Effect>) {
        let observers = self.observers.remove(name).into_iter().flatten();
        effects.extend(observers.map(|by| Effect::Observed {
            name: name.clone(),
            by,
        }));
    }

    /// True if it was in the queue.
    pub(super) fn leave_queue(&mut self, name: &LockName, id: &LeaseId) -> bool {
        if let Some(permits) = self.semaphores.get_mut(name) {
            permits.wanted.remove(id);
        }
        let Some(queue) = self.queues.get_mut(name) else {
            return false;
        };
        let before = queue.len();
        queue.retain(|queued| queued != id);
        let has_left = queue.len() < before;
        if queue.is_empty() {
            self.queues.remove(name);
        }
        has_left
    }

    fn count_call(&mut self, now_us: u64) {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_BETWEEN_SWEEPS) {
            self.locks.retain(|_, entry| entry.end_us > now_us);
            self.phases.retain(|_, phase| phase.end_us() > now_us);
            self.fences.retain(|_, fence| fence.end_us > now_us);
            self.semaphores
                .retain(|_, permits| permits.kept_until_us > now_us);
            self.runs.retain(|_, record| record.end_us > now_us);
            let locks = &self.locks;
            self.watched.retain(|name| locks.contains_key(name));
        }
    }
}

impl Phase {
    fn state(&self, now_us: u64) -> LockState {
        let mut by_end: Vec<_> = self.readers.iter().collect();
        by_end.sort_by_key(|(id, end_us)| (std::cmp::Reverse(**end_us), *id));
        let shown = by_end.into_iter().take(READERS_SHOWN);
        LockState {
            id: LeaseId::of_phase(self.fence),
            remaining: Some(std::time::Duration::from_micros(self.end_us() - now_us)),
            fence: Some(self.fence),
            meta: BTreeMap::new(),
            readers: Readers {
                count: self.readers.len() as u64,
                shown: shown.map(|(id, _)| id.clone()).collect(),
                slots: BTreeMap::new(),
            },
        }
    }
}

fn admission(name: &LockName, reader: LeaseId) -> Effect {
    Effect::Admitted {
        name: name.clone(),
        reader,
    }
}

pub(super) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2)
}
