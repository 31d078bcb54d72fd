//! The locks that a connection may acquire without a script.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fence_counter::FenceCounter;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{AcquireReply, Attempt, Wish};

/// Longer leases use the script: if the reply is lost, the attempt must be cancelled for as long as
/// its lease could last.
const TTL_LONGEST: Duration = Duration::from_secs(60);
/// How far the server's clock may be ahead of the expected value, in microseconds. A fence tells it to
/// the millisecond.
pub(super) const AHEAD_MAX_US: u64 = 2_000;
/// How long the fence counter exists for certain after a script has extended it by a day. If it expired
/// while locks are in use, fences would depend on the clock alone.
const COUNTER_KEPT_FOR: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a lock is left to the script after anything unusual.
const LEFT_TO_SCRIPT_FOR: Duration = Duration::from_secs(1);
/// How many locks are remembered.
const LOCKS_MAX: usize = 10_000;

/// The locks that a connection may acquire by transaction: all but those for which something was
/// unusual a moment ago.
#[derive(Default)]
pub(super) struct TransactionCandidates {
    /// Until when the shared fence counter certainly exists, in nanoseconds of the clock.
    counter_kept_until: AtomicU64,
    /// The same of the counters of single locks.
    own_counters: Mutex<HashMap<LockName, Moment>>,
    /// Until when locks are left to the script.
    left_to_script: Mutex<HashMap<LockName, Moment>>,
    /// The server does not permit transactions.
    refused: AtomicBool,
}

impl TransactionCandidates {
    pub(super) fn includes(&self, attempt: &Attempt, counter: FenceCounter, now: Moment) -> bool {
        let plain = attempt.fences == 1 && !attempt.queue && !attempt.held.has_meta;
        plain
            && attempt.held.mode == Mode::Exclusive
            && attempt.wish == Wish::Lock
            && attempt.held.ttl <= TTL_LONGEST
            && self.is_kept(counter, &attempt.held.name, now)
            && !self.refused.load(Ordering::Relaxed)
            && !self.is_left_to_script(&attempt.held.name, now)
    }

    /// Notes what acquire.lua found, sent at this moment, when the server's clock showed `clock_us`
    /// at most.
    pub(super) fn note(
        &self,
        name: &LockName,
        counter: FenceCounter,
        attempted: &AcquireReply,
        asked_at: Moment,
        clock_us: u64,
    ) {
        match attempted {
            AcquireReply::Granted { fence, .. } if fence.get() <= clock_us + AHEAD_MAX_US => {
                self.note_kept(counter, name, Some(asked_at + COUNTER_KEPT_FOR));
            }
            // A counter ahead of the clock does not tell the time.
            AcquireReply::Granted { .. } => self.note_kept(counter, name, None),
            // If a lock is busy, the script writes nothing.
            AcquireReply::Busy(_) | AcquireReply::NotYet(_) => self.leave_to_script(name, asked_at),
        }
    }

    /// The server does not permit transactions.
    pub(super) fn refuse_all(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Something was unusual with this lock.
    pub(super) fn leave_to_script(&self, name: &LockName, now: Moment) {
        let mut left = lock(&self.left_to_script);
        if left.len() >= LOCKS_MAX {
            left.retain(|_, until| now < *until);
        }
        if left.len() < LOCKS_MAX {
            left.insert(name.clone(), now + LEFT_TO_SCRIPT_FOR);
        }
    }

    fn is_left_to_script(&self, name: &LockName, now: Moment) -> bool {
        let mut left = lock(&self.left_to_script);
        match left.get(name) {
            Some(until) if now < *until => true,
            Some(_) => {
                left.remove(name);
                false
            }
            None => false,
        }
    }

    /// Whether the counter certainly exists.
    fn is_kept(&self, counter: FenceCounter, name: &LockName, now: Moment) -> bool {
        match counter {
            FenceCounter::Shared => {
                now.as_nanos() < self.counter_kept_until.load(Ordering::Relaxed)
            }
            FenceCounter::OfEachLock(_) => lock(&self.own_counters)
                .get(name)
                .is_some_and(|until| now < *until),
        }
    }

    fn note_kept(&self, counter: FenceCounter, name: &LockName, until: Option<Moment>) {
        if counter == FenceCounter::Shared {
            let until = until.map_or(0, Moment::as_nanos);
            self.counter_kept_until.store(until, Ordering::Relaxed);
            return;
        }
        let mut own_counters = lock(&self.own_counters);
        let Some(until) = until else {
            own_counters.remove(name);
            return;
        };
        if own_counters.len() >= LOCKS_MAX {
            // Locks in use are noted again by their next script.
            own_counters.clear();
        }
        own_counters.insert(name.clone(), until);
    }
}

fn lock(locks: &Mutex<HashMap<LockName, Moment>>) -> MutexGuard<'_, HashMap<LockName, Moment>> {
    locks.lock().unwrap_or_else(PoisonError::into_inner)
}
