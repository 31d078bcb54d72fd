//! What one lease needs, and when: a renewal, a check that it still exists, its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::renewal_time;
use super::request_state::RequestState;
use crate::belief::Belief;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::standing::LostReason;

/// A lease of this age is watched: the server reports when its key changes. Most locks are held for
/// less, and cost nothing extra.
pub(super) const WATCH_AFTER: Duration = Duration::from_secs(1);
/// A moment that is always in the past.
pub(super) const AT_ONCE: Moment = Moment::from_nanos(0);

/// What the watchdog knows about one lease.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own"
)]
pub(super) struct TrackedLease {
    pub(super) belief: Arc<Belief>,
    /// Its due time in the schedule; `None` once it is lost.
    pub(super) scheduled: Option<Moment>,
    pub(super) renewal: RequestState,
    pub(super) check: RequestState,
    /// Whether the server reports changes of the key.
    pub(super) watched: bool,
    /// Whether the process keeps it while no caller holds it. It is renewed and watched as if it
    /// were held, so that using it again changes nothing here.
    pub(super) kept: bool,
    /// Whether the loss was noticed: nothing is left to do.
    pub(super) lost: bool,
    /// Callers that wait for a renewal attempt, and whether one was just made.
    waiting: Option<Box<WaitingCallers>>,
    pub(super) renewal_tried: bool,
}

/// In a box of its own: hardly any lease has some.
#[derive(Default)]
struct WaitingCallers(Vec<oneshot::Sender<()>>);

/// Something to do for a lease.
pub(super) enum DueTask {
    Renew { belief: Arc<Belief>, watched: bool },
    Check(Arc<Belief>),
    Lose(Arc<Belief>, LostReason),
}

impl TrackedLease {
    pub(super) fn new(belief: Arc<Belief>) -> Self {
        let renew_at = if belief.needs_confirmation() && !bug(Bug::OfferNotConfirmed) {
            AT_ONCE
        } else {
            renewal_time::after_success(belief.acquired_at, belief.held.ttl)
        };
        Self {
            scheduled: None,
            renewal: RequestState::at(belief.renewed.then_some(renew_at)),
            check: RequestState::at(can_watch(&belief).then(|| belief.acquired_at + WATCH_AFTER)),
            watched: false,
            kept: false,
            lost: false,
            waiting: None,
            renewal_tried: false,
            belief,
        }
    }

    /// When this lease needs something next; `None` once it is lost.
    pub(super) fn next(&self) -> Option<Moment> {
        let let_go = self.belief.is_over();
        let let_go = let_go && !self.kept && !bug(Bug::RenewalAfterRelease);
        if self.lost || let_go {
            return None;
        }
        let needs = [
            Some(self.belief.deadline()),
            self.renewal.next(),
            self.check.next(),
            self.belief.max_hold_at().filter(|_| !self.kept),
        ];
        needs.into_iter().flatten().min()
    }

    /// Starts what is due.
    pub(super) fn begin(&mut self, now: Moment, tasks: &mut Vec<DueTask>) {
        if let Some(reason) = self.lost_by(now) {
            self.lost = true;
            return tasks.push(DueTask::Lose(Arc::clone(&self.belief), reason));
        }
        if self.renewal.begins(now) {
            tasks.push(DueTask::Renew {
                belief: Arc::clone(&self.belief),
                watched: self.watched,
            });
        }
        if self.check.begins(now) {
            tasks.push(DueTask::Check(Arc::clone(&self.belief)));
        }
    }

    fn lost_by(&self, now: Moment) -> Option<LostReason> {
        if now >= self.belief.deadline() {
            return Some(LostReason::Expired);
        }
        let max_hold_at = self.belief.max_hold_at().filter(|_| !self.kept);
        max_hold_at
            .is_some_and(|at| now >= at)
            .then_some(LostReason::MaxHold)
    }

    /// Adds a caller that waits for the next renewal attempt.
    pub(super) fn add_waiting(&mut self, caller: oneshot::Sender<()>) {
        self.waiting.get_or_insert_default().0.push(caller);
    }

    pub(super) fn take_waiting(&mut self) -> Vec<oneshot::Sender<()>> {
        self.waiting
            .take()
            .map_or_else(Vec::new, |waiting| waiting.0)
    }

    /// No caller holds it any more, but the next one may get it.
    pub(super) fn keep(&mut self, watch_at: Moment) {
        self.kept = true;
        // It was due later, or not since it was last watched.
        if self.check.due().is_some() {
            self.check.set_due_by(watch_at);
        }
    }

    pub(super) fn recheck(&mut self) {
        if !can_watch(&self.belief) {
            return;
        }
        self.watched = false;
        self.check.set_due(AT_ONCE);
    }
}

/// Whether the server can report that the lease is gone. The key of a shared lock changes whenever any
/// reader comes or renews, so the loss of a shared lease is noticed at its renewal.
fn can_watch(belief: &Belief) -> bool {
    belief.held.mode == Mode::Exclusive
}
