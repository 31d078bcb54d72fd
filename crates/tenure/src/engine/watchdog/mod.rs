//! The watchdog: renews held leases, and tells the holder when one is lost.
//!
//! One task for all leases of a client. It sleeps until the next lease needs something: a renewal
//! at a third of its ttl, a check that it still exists, its deadline, its `max_hold`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use self::batch_limit::BatchLimit;
use self::due_queue::DueQueue;
use self::request_state::RequestState;
use self::tracked_lease::{AT_ONCE, TrackedLease};
use crate::belief::Belief;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

mod batch_limit;
mod due_queue;
mod renew_batch;
mod renewal_time;
mod request_state;
pub(crate) mod task;
mod tracked_lease;

/// All leases of a client that a guard holds.
#[derive(Default)]
pub(crate) struct Watchdog {
    /// A std mutex: never held across an await, and no task is woken while it is held.
    due_queue: Mutex<DueQueue>,
    /// The earliest due time has changed.
    sooner: Notify,
    /// Limits concurrent batches.
    renewals: BatchLimit,
    checks: BatchLimit,
}

impl Watchdog {
    pub(crate) fn track(&self, belief: &Arc<Belief>) {
        let mut due_queue = self.due_queue();
        due_queue.insert(TrackedLease::new(Arc::clone(belief)));
        self.wake_if_sooner(&due_queue);
    }

    /// Stops tracking a lease that its holder releases.
    pub(crate) fn untrack(&self, number: u64) {
        if bug(Bug::RenewalAfterRelease) {
            return;
        }
        let lease = self.due_queue().remove(number);
        // This wakes callers that wait for a renewal, so only after unlocking.
        drop(lease);
    }

    /// Tracks the next holder's belief in the same lease. False if the lease is lost or no longer
    /// tracked: then there is nothing to hand off.
    pub(crate) fn hand_off(&self, from: &Arc<Belief>, to: &Arc<Belief>) -> bool {
        let mut due_queue = self.due_queue();
        let lease = due_queue.leases.get(&from.number);
        let unseen =
            |lease: &TrackedLease| bug(Bug::HandOffLost) || lease.kept && bug(Bug::KeptLossIgnored);
        let is_lost = |lease: &TrackedLease| lease.lost && !unseen(lease);
        let is_tracked =
            lease.is_some_and(|lease| !is_lost(lease) && Arc::ptr_eq(&lease.belief, from));
        if is_tracked && !bug(Bug::HandOffNotRenewed) {
            // No caller waits for a renewal of a lease that is being released.
            let _ = due_queue.update(from.number, |lease| {
                lease.belief = Arc::clone(to);
                lease.kept = false;
            });
            // Since the last holder released it, the watchdog may have seen it as ended.
            self.wake_if_sooner(&due_queue);
        }
        is_tracked
    }

    /// Goes on tracking a lease that no caller holds. From `watch_at` on, the server reports when its
    /// key changes. False if the lease is lost or no longer tracked.
    pub(crate) fn keep(&self, belief: &Arc<Belief>, watch_at: Moment) -> bool {
        let mut due_queue = self.due_queue();
        let lease = due_queue.leases.get(&belief.number);
        let is_tracked =
            lease.is_some_and(|lease| !lease.lost && Arc::ptr_eq(&lease.belief, belief));
        if is_tracked {
            let _ = due_queue.update(belief.number, |lease| lease.keep(watch_at));
            self.wake_if_sooner(&due_queue);
        }
        is_tracked
    }

    /// Whether this client holds the lock already, as far as it knows.
    pub(crate) fn is_tracked(&self, name: &LockName) -> bool {
        self.due_queue().with_name(name).next().is_some()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Belief>> {
        let due_queue = self.due_queue();
        let beliefs = due_queue
            .leases
            .values()
            .map(|lease| Arc::clone(&lease.belief));
        beliefs.collect()
    }

    /// The leases that were granted first, at most this many and in no order, and how many there
    /// are.
    pub(crate) fn oldest(&self, most: usize) -> (Vec<Arc<Belief>>, usize) {
        let due_queue = self.due_queue();
        let oldest = due_queue.oldest(most).into_iter();
        let leases = oldest.filter_map(|number| due_queue.leases.get(&number));
        let beliefs = leases.map(|lease| Arc::clone(&lease.belief)).collect();
        (beliefs, due_queue.leases.len())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.due_queue().leases.is_empty()
    }

    /// The key of this lock changed: check that the lease still exists.
    pub(crate) fn recheck(&self, name: &LockName) {
        let numbers = self.due_queue().with_name(name).collect();
        self.update_leases(numbers, TrackedLease::recheck);
    }

    /// Invalidations may have been missed: check all watched leases.
    pub(crate) fn recheck_all(&self) {
        let watched = |lease: &&TrackedLease| lease.watched;
        let number = |lease: &TrackedLease| lease.belief.number;
        let numbers = self
            .due_queue()
            .leases
            .values()
            .filter(watched)
            .map(number)
            .collect();
        self.update_leases(numbers, TrackedLease::recheck);
    }

    /// Renews a lease now; returns after the attempt.
    pub(crate) async fn renew_now(&self, number: u64) {
        let (done, tried) = oneshot::channel();
        let mut done = Some(done);
        self.update_leases(vec![number], |lease| {
            lease.renewal.set_due(AT_ONCE);
            done.take()
                .into_iter()
                .for_each(|done| lease.add_waiting(done));
        });
        // If the lease is not tracked, it is lost, and the sender is gone.
        drop(done);
        let _ = tried.await;
    }

    /// Returns when no renewal of a lease is in flight that could overtake the next request.
    pub(crate) async fn wait_for_renewal(&self, number: u64) {
        let (done, tried) = oneshot::channel();
        let mut done = Some(done);
        self.update_leases(vec![number], |lease| {
            if lease.renewal.is_in_flight() {
                done.take()
                    .into_iter()
                    .for_each(|done| lease.add_waiting(done));
            }
        });
        drop(done);
        let _ = tried.await;
    }

    /// Notes that the store no longer has a lease. Returns the current holder's belief, which must
    /// be told.
    fn mark_lost(&self, number: u64) -> Option<Arc<Belief>> {
        let mut due_queue = self.due_queue();
        let lease = due_queue.leases.get_mut(&number)?;
        lease.lost = true;
        Some(Arc::clone(&lease.belief))
    }

    /// The belief of the current holder of a lease.
    fn current(&self, belief: &Arc<Belief>) -> Arc<Belief> {
        let due_queue = self.due_queue();
        let lease = due_queue.leases.get(&belief.number);
        lease.map_or_else(|| Arc::clone(belief), |lease| Arc::clone(&lease.belief))
    }

    fn renewals_tried(&self, due: Vec<(u64, Option<Moment>)>) {
        let mut due_queue = self.due_queue();
        let mut answered = Vec::new();
        for (number, renew_at) in due {
            answered.extend(due_queue.update(number, |lease| {
                lease.renewal.end();
                // A caller that asked meanwhile wants a newer renewal than this one.
                if lease.renewal.due().is_none() {
                    lease.renewal = RequestState::at(renew_at);
                    lease.renewal_tried = true;
                }
            }));
        }
        self.wake_if_sooner(&due_queue);
        drop(due_queue);
        // Dropping them wakes their callers, so only after unlocking.
        drop(answered);
    }

    fn update_leases(&self, numbers: Vec<u64>, mut change: impl FnMut(&mut TrackedLease)) {
        let mut due_queue = self.due_queue();
        let mut answered = Vec::new();
        for number in numbers {
            answered.extend(due_queue.update(number, &mut change));
        }
        drop(due_queue);
        // Dropping them wakes their callers, so only after unlocking.
        drop(answered);
        self.sooner.notify_one();
    }

    fn wake_if_sooner(&self, due_queue: &DueQueue) {
        let next = due_queue.next();
        if due_queue
            .asleep_until
            .is_none_or(|until| next < Some(until))
        {
            self.sooner.notify_one();
        }
    }

    fn due_queue(&self) -> MutexGuard<'_, DueQueue> {
        self.due_queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::tracked_lease::WATCH_AFTER;
    use super::*;
    use crate::belief::Grant;
    use crate::lease::{ClientId, Fence, LeaseId};
    use crate::settings::HandOff;
    use crate::store::LeaseSpec;

    /// So short that the renewal comes before the first check.
    const TTL: Duration = Duration::from_secs(2);
    const START: Moment = Moment::from_nanos(1_000);

    fn belief() -> Arc<Belief> {
        belief_of(TTL)
    }

    fn belief_of(ttl: Duration) -> Arc<Belief> {
        granted(1, START, ttl)
    }

    fn granted(number: u64, sent_at: Moment, ttl: Duration) -> Arc<Belief> {
        Arc::new(Belief::new(Grant {
            number,
            held: LeaseSpec {
                has_meta: false,
                ..LeaseSpec::new(
                    LockName::new("n").unwrap(),
                    LeaseId::fresh(crate::layout::Layout::Native, &ClientId::fresh(), 1, ttl),
                    ttl,
                )
            },
            fence: Fence::new(1),
            fences: 3,
            answered_at: Moment::from_nanos(0),
            sent_at,
            renewed: true,
            max_hold: None,
            keep: None,
            uncontended: true,
            meta: Arc::default(),
            permits: None,
            in_flight: None,
        }))
    }

    fn for_next_holder(belief: &Arc<Belief>) -> Arc<Belief> {
        let next = belief.for_next_holder(&HandOff::default(), START + Duration::from_millis(1));
        next.unwrap()
    }

    /// What the watchdog's task does before it sleeps.
    fn falls_asleep(watchdog: &Watchdog) -> Option<Moment> {
        watchdog.due_queue().fall_asleep(START)
    }

    /// Lease numbers are random and tell nothing about age.
    #[test]
    fn the_oldest_leases_are_those_that_were_granted_first() {
        let watchdog = Watchdog::default();
        for age in 0..100_u64 {
            let number = age.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            watchdog.track(&granted(number, START + Duration::from_millis(age), TTL));
        }
        let (oldest, count) = watchdog.oldest(10);
        let latest = oldest.iter().map(|belief| belief.acquired_at).max();
        assert_eq!((oldest.len(), count), (10, 100));
        assert_eq!(latest, Some(START + Duration::from_millis(9)));
        assert_eq!(watchdog.oldest(1_000).0.len(), 100);
    }

    #[test]
    fn a_lease_goes_on_being_renewed_when_it_is_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.track(&first);
        let renews_at = falls_asleep(&watchdog);
        assert_eq!(renews_at, Some(START + TTL / 3));
        let second = for_next_holder(&first);
        assert!(first.end());
        assert!(watchdog.hand_off(&first, &second));
        assert_eq!(falls_asleep(&watchdog), renews_at);
    }

    /// The watchdog may run between the two, and see that the first holder has released.
    #[test]
    fn the_watchdog_is_woken_if_it_had_given_up_the_lease() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.track(&first);
        let second = for_next_holder(&first);
        assert!(first.end());
        watchdog.update_leases(vec![1], |_| {});
        assert_eq!(falls_asleep(&watchdog), Some(START + WATCH_AFTER));
        assert!(is_woken(&watchdog), "by the change");
        assert!(watchdog.hand_off(&first, &second));
        assert!(
            is_woken(&watchdog),
            "it sleeps, and the lease is not renewed"
        );
        assert_eq!(falls_asleep(&watchdog), Some(START + TTL / 3));
    }

    #[test]
    fn leases_that_go_as_soon_as_they_come_wake_it_once_in_a_while() {
        let watchdog = Watchdog::default();
        let come_and_go = || {
            watchdog.track(&belief_of(Duration::from_secs(30)));
            watchdog.untrack(1);
        };
        come_and_go();
        assert!(is_woken(&watchdog), "it sleeps without an alarm");
        let alarm = watchdog.due_queue().fall_asleep(START);
        assert_eq!(alarm, Some(START + WATCH_AFTER));
        come_and_go();
        assert!(!is_woken(&watchdog), "it looks soon enough");
        watchdog.track(&belief());
        assert!(is_woken(&watchdog), "this one needs it before");
        watchdog.untrack(1);
        let alarm = watchdog.due_queue().fall_asleep(START);
        assert_eq!(alarm, Some(START + WATCH_AFTER));
        let alarm = watchdog.due_queue().fall_asleep(START + WATCH_AFTER);
        assert_eq!(alarm, None, "no more entries");
    }

    /// Whether the watchdog was woken since.
    fn is_woken(watchdog: &Watchdog) -> bool {
        let woken = std::pin::pin!(watchdog.sooner.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        woken.poll(&mut context).is_ready()
    }

    #[test]
    fn a_lost_lease_is_not_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.track(&first);
        let second = for_next_holder(&first);
        assert!(watchdog.mark_lost(1).is_some());
        assert!(first.end());
        assert!(!watchdog.hand_off(&first, &second));
    }

    #[test]
    fn a_lease_that_is_no_longer_looked_after_is_not_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        let second = for_next_holder(&first);
        assert!(!watchdog.hand_off(&first, &second));
    }
}
