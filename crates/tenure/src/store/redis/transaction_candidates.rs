//! The locks that a connection may acquire without a script.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{AcquireReply, Attempt};

/// Longer leases use the script: if the reply is lost, the attempt must be cancelled for as long as
/// its lease could last.
const TTL_LONGEST: Duration = Duration::from_secs(60);
/// How far the server's clock may be ahead of the expected value, in microseconds. A fence tells it to
/// the millisecond.
pub(super) const AHEAD_MAX_US: u64 = 2_000;
/// How many names are remembered per connection, and for how long. The script extends a counter by
/// a day; if the counter expired while the lock is in use, fences would depend on the clock alone.
const CANDIDATES_MAX: usize = 10_000;
const CANDIDATE_FOR: Duration = Duration::from_secs(12 * 60 * 60);

/// The locks that a connection may acquire by transaction.
#[derive(Default)]
pub(super) struct TransactionCandidates {
    /// Locks that were free the last time, and until when their fence counters certainly exist.
    names: Mutex<HashMap<LockName, Moment>>,
    /// The server does not permit transactions.
    refused: AtomicBool,
}

impl TransactionCandidates {
    pub(super) fn includes(&self, attempt: &Attempt, now: Moment) -> bool {
        let plain = attempt.fences == 1 && !attempt.queue && !attempt.held.has_meta;
        plain
            && attempt.held.ttl <= TTL_LONGEST
            && !self.refused.load(Ordering::Relaxed)
            && self
                .names()
                .get(&attempt.held.name)
                .is_some_and(|until| now < *until)
    }

    /// Notes what acquire.lua found, sent at this moment when the server's clock showed `clock_us`
    /// at most.
    pub(super) fn note(
        &self,
        name: &LockName,
        attempted: &AcquireReply,
        asked_at: Moment,
        clock_us: u64,
    ) {
        let mut names = self.names();
        match attempted {
            AcquireReply::Granted { fence, .. } if fence.get() <= clock_us + AHEAD_MAX_US => {
                if names.len() >= CANDIDATES_MAX {
                    names.clear();
                }
                names.insert(name.clone(), asked_at + CANDIDATE_FOR);
            }
            // A counter ahead of the clock does not tell the time. A busy lock is left to the
            // script, which then writes nothing.
            AcquireReply::Granted { .. } | AcquireReply::Busy(_) | AcquireReply::NotYet(_) => {
                names.remove(name);
            }
        }
    }

    /// The server does not permit transactions.
    pub(super) fn refuse_all(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(super) fn forget(&self, name: &LockName) {
        self.names().remove(name);
    }

    fn names(&self) -> MutexGuard<'_, HashMap<LockName, Moment>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
