//! The lock as a pure state machine: no clock, no randomness, no waiting. Time is an argument, in
//! microseconds of the store's own clock. The memory store is built on it, and tests compare the
//! other stores with it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::lease::{ClientId, Fence, LeaseId};
use crate::name::LockName;
use crate::store::{
    Attempt, FENCE_KEPT, LeaseSpec, LockState, Record, RecordChange, RecordWritten, ReleaseReply,
    offer_duration,
};

/// After this many calls the machine drops expired entries, so that it does not grow forever.
const CALLS_BETWEEN_SWEEPS: u64 = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Machine {
    locks: HashMap<LockName, Entry>,
    fences: HashMap<LockName, Expiring<u64>>,
    queues: HashMap<LockName, VecDeque<LeaseId>>,
    watched: HashSet<LockName>,
    records: HashMap<ClientId, Expiring<BTreeMap<String, String>>>,
    calls: u64,
}

#[derive(Debug)]
struct Entry {
    id: LeaseId,
    end_us: u64,
    meta: Arc<BTreeMap<String, String>>,
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
    Busy { holder: LeaseId, left_us: u64 },
}

/// What the machine wants published.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Offered {
        name: LockName,
        to: LeaseId,
    },
    /// A watched lease ended.
    Changed {
        name: LockName,
        lease: LeaseId,
    },
}

/// The lease does not exist; another may be in its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) taken_by: Option<LeaseId>,
}

impl Machine {
    pub(crate) fn acquire(&mut self, now_us: u64, attempt: &Attempt) -> MachineReply {
        self.count_call(now_us);
        let LeaseSpec { name, id, ttl, .. } = &attempt.held;
        let end_us = now_us + micros(*ttl);
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
        MachineReply::Granted(self.mint(name, now_us, attempt.fences))
    }

    pub(crate) fn renew(&mut self, now_us: u64, lease: &LeaseSpec) -> Result<(), Absent> {
        self.count_call(now_us);
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
    ) -> Result<(), Absent> {
        self.count_call(now_us);
        let before = LeaseSpec {
            id: from.clone(),
            ..lease.clone()
        };
        let holder = if self.held(lease, now_us).is_ok() {
            lease
        } else {
            &before
        };
        let entry = self.held(holder, now_us)?;
        entry.id = lease.id.clone();
        entry.end_us = now_us + micros(lease.ttl);
        Ok(())
    }

    /// Checks that the lease exists, and publishes when that changes.
    pub(crate) fn watch(&mut self, now_us: u64, lease: &LeaseSpec) -> Result<(), Absent> {
        self.held(lease, now_us)?;
        self.watched.insert(lease.name.clone());
        Ok(())
    }

    /// Ends the lease, or leaves the queue.
    pub(crate) fn release(
        &mut self,
        now_us: u64,
        lease: &LeaseSpec,
        dequeue: Option<&LeaseId>,
        effects: &mut Vec<Effect>,
    ) -> ReleaseReply {
        self.count_call(now_us);
        if let Some(dequeue) = dequeue {
            self.leave_queue(&lease.name, dequeue);
        }
        if self.held(lease, now_us).is_err() {
            self.leave_queue(&lease.name, &lease.id);
            return ReleaseReply::NotHeld;
        }
        self.locks.remove(&lease.name);
        if self.watched.remove(&lease.name) {
            effects.push(Effect::Changed {
                name: lease.name.clone(),
                lease: lease.id.clone(),
            });
        }
        let offered_to = self.offer_to_next(now_us, &lease.name);
        effects.extend(offered_to.clone().map(|to| Effect::Offered {
            name: lease.name.clone(),
            to,
        }));
        ReleaseReply::WasHeld { offered_to }
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
            return Err(self.release(now_us, lease, None, effects));
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
        let entry = self.live(name, now_us)?;
        Some(LockState {
            id: entry.id.clone(),
            remaining: Some(std::time::Duration::from_micros(entry.end_us - now_us)),
            fence: Some(fence),
            meta: entry.meta.as_ref().clone(),
        })
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
    fn offer_to_next(&mut self, now_us: u64, name: &LockName) -> Option<LeaseId> {
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
        Some(next)
    }

    /// Reserves some fences and returns the first.
    fn mint(&mut self, name: &LockName, now_us: u64, count: u32) -> Fence {
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

    fn live(&mut self, name: &LockName, now_us: u64) -> Option<&mut Entry> {
        self.locks
            .get_mut(name)
            .filter(|entry| entry.end_us > now_us)
    }

    fn held(&mut self, lease: &LeaseSpec, now_us: u64) -> Result<&mut Entry, Absent> {
        match self.live(&lease.name, now_us) {
            Some(entry) if entry.id == lease.id => Ok(entry),
            other => Err(Absent {
                taken_by: other.map(|entry| entry.id.clone()),
            }),
        }
    }

    fn join_queue(&mut self, name: &LockName, id: &LeaseId) {
        let queue = self.queues.entry(name.clone()).or_default();
        if !queue.contains(id) {
            queue.push_back(id.clone());
        }
    }

    fn leave_queue(&mut self, name: &LockName, id: &LeaseId) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.retain(|queued| queued != id);
            if queue.is_empty() {
                self.queues.remove(name);
            }
        }
    }

    fn count_call(&mut self, now_us: u64) {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_BETWEEN_SWEEPS) {
            self.locks.retain(|_, entry| entry.end_us > now_us);
            self.fences.retain(|_, fence| fence.end_us > now_us);
            let locks = &self.locks;
            self.watched.retain(|name| locks.contains_key(name));
        }
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2)
}
