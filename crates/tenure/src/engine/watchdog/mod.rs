//! The watchdog: renews what is held, and tells the holder when it is lost.
//!
//! One task for all leases of a client. It sleeps until the next lease needs something: a renewal
//! at a third of its ttl, a look whether it is still there, its deadline, its longest hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use self::batch_limit::BatchLimit;
use self::schedule::Schedule;
use self::tracked_lease::{AT_ONCE, TrackedLease};
use crate::belief::Belief;
use crate::core::Core;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

mod batch_limit;
mod renew_batch;
mod schedule;
mod tracked_lease;

/// All leases of a client that a guard holds.
#[derive(Default)]
pub(crate) struct Watchdog {
    /// A std mutex: nothing is awaited, and nobody is woken, while it is held.
    roster: Mutex<Schedule>,
    /// The first thing to do has changed.
    sooner: Notify,
    /// Whose turn it is to ask.
    renewals: BatchLimit,
    looks: BatchLimit,
}

impl Watchdog {
    pub(crate) fn look_after(&self, belief: &Arc<Belief>) {
        let mut roster = self.roster();
        roster.enter(TrackedLease::new(Arc::clone(belief)));
        self.wake_if_sooner(&roster);
    }

    /// Ends the care for a lease that its holder lets go.
    pub(crate) fn forget(&self, number: u64) {
        if bug(Bug::RenewalAfterRelease) {
            return;
        }
        let care = self.roster().leave(number);
        // Whoever waits for a renewal of it is woken by this: after the roster is unlocked.
        drop(care);
    }

    /// Looks after the next holder's belief in the same lease. False if the lease is lost, or the
    /// last holder's care has ended: then there is nothing to hand off.
    pub(crate) fn hand_over(&self, from: &Arc<Belief>, to: &Arc<Belief>) -> bool {
        let mut roster = self.roster();
        let care = roster.leases.get(&from.number);
        let is_lost = |care: &TrackedLease| care.lost && !bug(Bug::HandOffLost);
        let cared_for = care.is_some_and(|care| !is_lost(care) && Arc::ptr_eq(&care.belief, from));
        if cared_for && !bug(Bug::HandOffNotRenewed) {
            // Nobody waits for a renewal of what is let go.
            let _ = roster.update(from.number, |care| care.belief = Arc::clone(to));
            // Since the last holder let go it may have been taken for over.
            self.wake_if_sooner(&roster);
        }
        cared_for
    }

    /// Whether this client holds the lock already, as far as it knows.
    pub(crate) fn cares_for(&self, name: &LockName) -> bool {
        self.roster().by_name.contains_key(name)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Belief>> {
        let roster = self.roster();
        let beliefs = roster.leases.values().map(|care| Arc::clone(&care.belief));
        beliefs.collect()
    }

    /// The leases that were granted first, at most so many and in no order, and how many there are.
    pub(crate) fn oldest(&self, most: usize) -> (Vec<Arc<Belief>>, usize) {
        let roster = self.roster();
        let oldest = roster.oldest(most).into_iter();
        let cares = oldest.filter_map(|number| roster.leases.get(&number));
        let beliefs = cares.map(|care| Arc::clone(&care.belief)).collect();
        (beliefs, roster.leases.len())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.roster().leases.is_empty()
    }

    /// The key at this name changed: look whether the lease is still there.
    pub(crate) fn changed(&self, name: &LockName) {
        let numbers = self.roster().by_name.get(name).cloned();
        self.change(numbers.unwrap_or_default(), TrackedLease::look_again);
    }

    /// Changes may have been missed: look at all that were watched.
    pub(crate) fn missed(&self) {
        let watched = |care: &&TrackedLease| care.watched;
        let number = |care: &TrackedLease| care.belief.number;
        let numbers = self
            .roster()
            .leases
            .values()
            .filter(watched)
            .map(number)
            .collect();
        self.change(numbers, TrackedLease::look_again);
    }

    /// Renews a lease now; returns when that was tried.
    pub(crate) async fn renew_now(&self, number: u64) {
        let (done, tried) = oneshot::channel();
        let mut done = Some(done);
        self.change(vec![number], |care| {
            care.renewal.due = Some(AT_ONCE);
            care.waiting.extend(done.take());
        });
        // If nobody looks after the lease, it is lost, and the sender is gone.
        drop(done);
        let _ = tried.await;
    }

    /// Returns when no renewal of a lease is under way, which could overtake whatever is done next.
    pub(crate) async fn settled(&self, number: u64) {
        let (done, tried) = oneshot::channel();
        let mut done = Some(done);
        self.change(vec![number], |care| {
            if care.renewal.under_way {
                care.waiting.extend(done.take());
            }
        });
        drop(done);
        let _ = tried.await;
    }

    /// Takes note that the store no longer has a lease. Whoever holds it now must be told.
    fn lost(&self, number: u64) -> Option<Arc<Belief>> {
        let mut roster = self.roster();
        let care = roster.leases.get_mut(&number)?;
        care.lost = true;
        Some(Arc::clone(&care.belief))
    }

    /// The belief of whoever holds a lease by now.
    fn present(&self, belief: &Arc<Belief>) -> Arc<Belief> {
        let roster = self.roster();
        let care = roster.leases.get(&belief.number);
        care.map_or_else(|| Arc::clone(belief), |care| Arc::clone(&care.belief))
    }

    fn renewals_tried(&self, due: Vec<(u64, Option<Moment>)>) {
        let mut roster = self.roster();
        let mut answered = Vec::new();
        for (number, renew_at) in due {
            answered.extend(roster.update(number, |care| {
                care.renewal.under_way = false;
                // Whoever asked meanwhile wants a renewal that is newer than this one.
                if care.renewal.due.is_none() {
                    care.renewal.due = renew_at;
                    care.renewal_tried = true;
                }
            }));
        }
        self.wake_if_sooner(&roster);
        drop(roster);
        // They are woken by being dropped: after the roster is unlocked.
        drop(answered);
    }

    fn change(&self, numbers: Vec<u64>, mut change: impl FnMut(&mut TrackedLease)) {
        let mut roster = self.roster();
        let mut answered = Vec::new();
        for number in numbers {
            answered.extend(roster.update(number, &mut change));
        }
        drop(roster);
        // They are woken by being dropped: after the roster is unlocked.
        drop(answered);
        self.sooner.notify_one();
    }

    fn wake_if_sooner(&self, roster: &Schedule) {
        let next = roster.next();
        if roster.asleep_until.is_none_or(|until| next < Some(until)) {
            self.sooner.notify_one();
        }
    }

    fn roster(&self) -> MutexGuard<'_, Schedule> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does what is due, for as long as the engine runs.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let sooner = core.watchdog.sooner.notified();
        let (due, next) = {
            let mut roster = core.watchdog.roster();
            let now = core.clock.now();
            let due = roster.due(now);
            (due, roster.fall_asleep(now))
        };
        renew_batch::perform(&core, due.tasks);
        drop(due.answered);
        let sleep = async {
            match next {
                Some(at) => core.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sooner => {}
            () = sleep => {}
        }
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

    /// So short that its renewal comes before anybody looks at it.
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
                name: LockName::new("n").unwrap(),
                id: LeaseId::fresh(crate::layout::Layout::Native, &ClientId::fresh(), 1, ttl),
                ttl,
                has_meta: false,
                replicas: 0,
                last_fence: None,
            },
            fence: Fence::new(1),
            fences: 3,
            answered_at: Moment::from_nanos(0),
            sent_at,
            renewed: true,
            max_hold: None,
            meta: Arc::default(),
            landing: None,
        }))
    }

    fn next_turn(belief: &Belief) -> Arc<Belief> {
        let next = belief.next_turn(&HandOff::default(), START + Duration::from_millis(1));
        Arc::new(next.unwrap())
    }

    /// What the watchdog's task does before it sleeps.
    fn falls_asleep(watchdog: &Watchdog) -> Option<Moment> {
        watchdog.roster().fall_asleep(START)
    }

    /// The numbers of leases are random, and say nothing of their age.
    #[test]
    fn the_oldest_leases_are_those_that_were_granted_first() {
        let watchdog = Watchdog::default();
        for age in 0..100_u64 {
            let number = age.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            watchdog.look_after(&granted(number, START + Duration::from_millis(age), TTL));
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
        watchdog.look_after(&first);
        let renews_at = falls_asleep(&watchdog);
        assert_eq!(renews_at, Some(START + TTL / 3));
        let second = next_turn(&first);
        assert!(first.end());
        assert!(watchdog.hand_over(&first, &second));
        assert_eq!(falls_asleep(&watchdog), renews_at);
    }

    /// The watchdog may look just between the two, and see that the first has let go.
    #[test]
    fn the_watchdog_is_woken_if_it_had_given_up_the_lease() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.look_after(&first);
        let second = next_turn(&first);
        assert!(first.end());
        watchdog.change(vec![1], |_| {});
        assert_eq!(falls_asleep(&watchdog), Some(START + WATCH_AFTER));
        assert!(is_woken(&watchdog), "by the change");
        assert!(watchdog.hand_over(&first, &second));
        assert!(
            is_woken(&watchdog),
            "it sleeps, and nobody renews the lease"
        );
        assert_eq!(falls_asleep(&watchdog), Some(START + TTL / 3));
    }

    #[test]
    fn leases_that_go_as_soon_as_they_come_wake_it_once_in_a_while() {
        let watchdog = Watchdog::default();
        let come_and_go = || {
            watchdog.look_after(&belief_of(Duration::from_secs(30)));
            watchdog.forget(1);
        };
        come_and_go();
        assert!(is_woken(&watchdog), "it sleeps without an alarm");
        let alarm = watchdog.roster().fall_asleep(START);
        assert_eq!(alarm, Some(START + WATCH_AFTER));
        come_and_go();
        assert!(!is_woken(&watchdog), "it looks soon enough");
        watchdog.look_after(&belief());
        assert!(is_woken(&watchdog), "this one needs it before");
        watchdog.forget(1);
        let alarm = watchdog.roster().fall_asleep(START);
        assert_eq!(alarm, Some(START + WATCH_AFTER));
        let alarm = watchdog.roster().fall_asleep(START + WATCH_AFTER);
        assert_eq!(alarm, None, "nobody came any more");
    }

    /// Whether somebody has woken the watchdog since.
    fn is_woken(watchdog: &Watchdog) -> bool {
        let woken = std::pin::pin!(watchdog.sooner.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        woken.poll(&mut context).is_ready()
    }

    #[test]
    fn a_lost_lease_is_not_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        watchdog.look_after(&first);
        let second = next_turn(&first);
        assert!(watchdog.lost(1).is_some());
        assert!(first.end());
        assert!(!watchdog.hand_over(&first, &second));
    }

    #[test]
    fn a_lease_that_is_no_longer_looked_after_is_not_handed_over() {
        let (watchdog, first) = (Watchdog::default(), belief());
        let second = next_turn(&first);
        assert!(!watchdog.hand_over(&first, &second));
    }
}
