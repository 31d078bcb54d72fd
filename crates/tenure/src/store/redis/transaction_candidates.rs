//! The locks that a connection may acquire without a script.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
/// How long a lock is left to the script after anything unusual, and how many locks are remembered.
const LEFT_TO_SCRIPT_FOR: Duration = Duration::from_secs(1);
const LEFT_TO_SCRIPT_MAX: usize = 10_000;

/// The locks that a connection may acquire by transaction: all but those for which something was
/// unusual a moment ago.
#[derive(Default)]
pub(super) struct TransactionCandidates {
    /// Until when the fence counter certainly exists, in nanoseconds of the clock.
    counter_kept_until: AtomicU64,
    /// Until when locks are left to the script.
    left_to_script: Mutex<HashMap<LockName, Moment>>,
    /// The server does not permit transactions.
    refused: AtomicBool,
}

impl TransactionCandidates {
    pub(super) fn includes(&self, attempt: &Attempt, now: Moment) -> bool {
        let plain = attempt.fences == 1 && !attempt.queue && !attempt.held.has_meta;
        plain
            && attempt.held.mode == Mode::Exclusive
            && attempt.wish == Wish::Lock
            && attempt.held.ttl <= TTL_LONGEST
            && now.as_nanos() < self.counter_kept_until.load(Ordering::Relaxed)
            && !self.refused.load(Ordering::Relaxed)
            && !self.is_left_to_script(&attempt.held.name, now)
    }

    /// Notes what acquire.lua found, sent at this moment, when the server's clock showed `clock_us`
    /// at most.
    pub(super) fn note(
        &self,
        name: &LockName,
        attempted: &AcquireReply,
        asked_at: Moment,
        clock_us: u64,
    ) {
        match attempted {
            AcquireReply::Granted { fence, .. } if fence.get() <= clock_us + AHEAD_MAX_US => {
                let kept_until = (asked_at + COUNTER_KEPT_FOR).as_nanos();
                self.counter_kept_until.store(kept_until, Ordering::Relaxed);
            }
            // A counter ahead of the clock does not tell the time.
            AcquireReply::Granted { .. } => self.counter_kept_until.store(0, Ordering::Relaxed),
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
        let mut left = self.left_to_script();
        if left.len() >= LEFT_TO_SCRIPT_MAX {
            left.retain(|_, until| now < *until);
        }
        if left.len() < LEFT_TO_SCRIPT_MAX {
            left.insert(name.clone(), now + LEFT_TO_SCRIPT_FOR);
        }
    }

    fn is_left_to_script(&self, name: &LockName, now: Moment) -> bool {
        let mut left = self.left_to_script();
        match left.get(name) {
            Some(until) if now < *until => true,
            Some(_) => {
                left.remove(name);
                false
            }
            None => false,
        }
    }

    fn left_to_script(&self) -> MutexGuard<'_, HashMap<LockName, Moment>> {
        self.left_to_script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
