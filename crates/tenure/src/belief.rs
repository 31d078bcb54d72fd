//! What a holder may believe about its lease, and until when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::lease::{DRIFT_DIVISOR, Fence, Lease, believed_until};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::settings::HandOff;
use crate::standing::{LostReason, Standing};
use crate::store::{InFlight, LeaseSpec, PermitRequest, Slots};

/// The belief in one lease: shared by the guards of a chain and the watchdog. When the lease is
/// handed off, the next holder gets a belief of its own in the same lease.
///
/// | state | `is_valid` | leaves it by |
/// |---|---|---|
/// | held | until the deadline | a failed renewal → suspect; loss → lost; release → ended |
/// | suspect | until the deadline | a renewal → held; loss → lost; release → ended |
/// | lost | no | never: a late good answer does not raise the dead |
/// | ended | no | never |
#[derive(Debug)]
pub(crate) struct Belief {
    /// Identifies the lease inside its client.
    pub(crate) number: u64,
    pub(crate) held: LeaseSpec,
    pub(crate) fence: Fence,
    pub(crate) acquired_at: Moment,
    /// Whether the watchdog renews it.
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    /// For how long after its grant the process may keep it while no caller holds it.
    pub(crate) keep: Option<Duration>,
    /// Whether the store granted it without a place in its queue, so that nobody was known to wait.
    uncontended: bool,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
    /// What it has of a semaphore.
    pub(crate) permits: Option<Arc<HeldPermits>>,
    /// Set if an earlier attempt of the same acquisition may still run on the server.
    pub(crate) in_flight: Option<InFlight>,
    hand_off: HandOffBudget,
    deadline: LeaseDeadline,
    state: Mutex<BeliefState>,
    /// Cancelled when the lease is lost or released. Made for the first who asks for it: most holders
    /// release without.
    no_longer_held: OnceLock<CancellationToken>,
}

/// What a lease has of a semaphore.
#[derive(Debug)]
pub(crate) struct HeldPermits {
    pub(crate) request: PermitRequest,
    pub(crate) slots: Slots,
}

/// Until when a lease may be believed, in nanoseconds of the clock. It belongs to the lease, so all
/// its holders share it. Atomic, because `is_valid` is called in hot loops.
#[derive(Debug)]
enum LeaseDeadline {
    /// Of the first holder.
    Own(AtomicU64),
    /// Of a later one.
    Of(Arc<Belief>),
}

/// What the store granted, and to whom.
pub(crate) struct Grant {
    pub(crate) number: u64,
    pub(crate) held: LeaseSpec,
    /// The first of the reserved fences, how many they are, and when the reply came.
    pub(crate) fence: Fence,
    pub(crate) fences: u32,
    pub(crate) answered_at: Moment,
    pub(crate) sent_at: Moment,
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) keep: Option<Duration>,
    pub(crate) uncontended: bool,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
    pub(crate) permits: Option<Arc<HeldPermits>>,
    pub(crate) in_flight: Option<InFlight>,
}

/// How often and how long a lease may still be handed off before the store is asked whose turn it
/// is.
#[derive(Clone, Copy, Debug)]
struct HandOffBudget {
    since: Moment,
    left: u32,
    /// The fence that the store minted, and a moment at which its clock had reached it.
    minted: Fence,
    minted_at: Moment,
}

impl HandOffBudget {
    /// Whether the store's clock has certainly reached this fence. A fence above its clock could be
    /// minted again for another holder, if the store loses its data.
    fn covers(&self, fence: Fence, now: Moment) -> bool {
        let passed = now.saturating_since(self.minted_at);
        let passed = passed.saturating_sub(passed / DRIFT_DIVISOR);
        let used = fence.get().saturating_sub(self.minted.get());
        u128::from(used) <= passed.as_micros()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BeliefState {
    Held,
    Suspect,
    Lost(LostReason),
    /// The holder released it; keeps whether it had lost the lease before.
    Ended(Option<LostReason>),
}

impl Belief {
    pub(crate) fn new(grant: Grant) -> Self {
        let deadline = believed_until(grant.sent_at, grant.held.ttl);
        let last_fence = (grant.fences > 1).then_some(grant.fence);
        Self {
            number: grant.number,
            held: LeaseSpec {
                last_fence,
                ..grant.held
            },
            fence: grant.fence,
            acquired_at: grant.sent_at,
            renewed: grant.renewed,
            max_hold: grant.max_hold,
            keep: grant.keep,
            uncontended: grant.uncontended,
            meta: grant.meta,
            permits: grant.permits,
            in_flight: grant.in_flight,
            hand_off: HandOffBudget {
                since: grant.sent_at,
                left: grant.fences - 1,
                minted: grant.fence,
                minted_at: grant.answered_at,
            },
            deadline: LeaseDeadline::Own(AtomicU64::new(deadline.as_nanos())),
            state: Mutex::new(BeliefState::Held),
            no_longer_held: OnceLock::new(),
        }
    }

    /// A lease that was taken as it was offered. The offer is shorter than the lease, so it must be
    /// renewed before `until`.
    pub(crate) fn of_offer(grant: Grant, until: Moment) -> Self {
        let belief = Self::new(grant);
        if bug(Bug::OfferBelievedForTtl) {
            return belief;
        }
        let until = until.min(belief.deadline());
        Self {
            deadline: LeaseDeadline::Own(AtomicU64::new(until.as_nanos())),
            ..belief
        }
    }

    /// The same lease, granted again by the store with new fences.
    pub(crate) fn regranted(
        &self,
        fence: Fence,
        fences: u32,
        (sent_at, answered_at): (Moment, Moment),
    ) -> Self {
        Self::new(Grant {
            number: self.number,
            held: self.held.clone(),
            fence,
            fences,
            answered_at,
            sent_at,
            renewed: self.renewed,
            max_hold: self.max_hold,
            keep: self.keep,
            uncontended: false,
            meta: Arc::clone(&self.meta),
            permits: None,
            in_flight: self.in_flight,
        })
    }

    /// The belief of the next holder, which gets this lease now. `None` if it may not be handed
    /// off: its fences or its time are used up, the store's clock has not reached the next fence,
    /// or too little of the lease is left.
    pub(crate) fn for_next_holder(
        self: &Arc<Self>,
        bounds: &HandOff,
        now: Moment,
    ) -> Option<Arc<Self>> {
        let unbounded = bug(Bug::HandOffUnbounded);
        let left = self.hand_off.left.checked_sub(1);
        let left = left.or_else(|| unbounded.then_some(0))?;
        // A lease that may be kept has more fences than it may be handed off.
        let turns = self.fence.get().saturating_sub(self.hand_off.minted.get());
        let few = turns < u64::from(bounds.turns) || unbounded;
        let ample = self.deadline().saturating_since(now) >= self.held.ttl / 2;
        let ample = ample || bug(Bug::HandOffLate) || bug(Bug::KeptTooLong);
        let in_time = now < self.hand_off.since + bounds.time;
        let in_time = in_time || unbounded || bug(Bug::KeptTooLong);
        let step = u64::from(!bug(Bug::HandOffSameFence));
        let fence = Fence::new(self.fence.get() + step);
        let covered = self.hand_off.covers(fence, now) || bug(Bug::HandOffAheadOfClock);
        if !self.renewed || !few || !ample || !in_time || !covered {
            return None;
        }
        Some(Arc::new(Self {
            number: self.number,
            held: LeaseSpec {
                last_fence: Some(fence),
                ..self.held.clone()
            },
            fence,
            acquired_at: now,
            renewed: self.renewed,
            max_hold: self.max_hold,
            keep: self.keep,
            uncontended: self.uncontended,
            meta: Arc::clone(&self.meta),
            // Leases of permits are not handed off.
            permits: None,
            in_flight: self.in_flight,
            hand_off: HandOffBudget {
                left,
                ..self.hand_off
            },
            deadline: LeaseDeadline::Of(self.first_holder()),
            state: Mutex::new(BeliefState::Held),
            no_longer_held: OnceLock::new(),
        }))
    }

    /// Until when the process may keep this lease, which its holder releases now; `None` if it must
    /// not: its keep time or its fences are used up, somebody may wait for it in the store, it is
    /// lost, or too little of it is left.
    pub(crate) fn kept_until(&self, now: Moment) -> Option<Moment> {
        let usable = self.uncontended
            && self.renewed
            && self.hand_off.left > 0
            && self.in_flight.is_none()
            && self.lost_reason().is_none()
            && now
                < self
                    .believable_until()
                    .min(self.deadline().before(self.held.ttl / 2));
        let until = self.keep_ends().filter(|_| usable);
        until.filter(|until| now < *until)
    }

    /// When this lease must go through the store again, however often it was used; `None` if it is
    /// never kept.
    pub(crate) fn keep_ends(&self) -> Option<Moment> {
        self.keep.map(|keep| self.hand_off.since + keep)
    }

    /// The belief of the next caller of this process, which gets the kept lease now. `None` as for
    /// [`for_next_holder`](Belief::for_next_holder).
    pub(crate) fn for_next_use(self: &Arc<Self>, now: Moment) -> Option<Arc<Self>> {
        let bounds = HandOff {
            on: true,
            turns: u32::MAX,
            time: self.keep?,
        };
        let next = self.for_next_holder(&bounds, now);
        if bug(Bug::KeptSameFence) {
            let fence = self.fence;
            let next = next.and_then(Arc::into_inner);
            return next.map(|next| Arc::new(Self { fence, ..next }));
        }
        next
    }

    /// Whether the next fence is reserved, but the store's clock may not have reached it yet.
    pub(crate) fn is_ahead_of_clock(&self, now: Moment) -> bool {
        let next = Fence::new(self.fence.get() + 1);
        self.hand_off.left > 0 && !self.hand_off.covers(next, now)
    }

    /// When the reply with the grant came.
    pub(crate) fn granted_at(&self) -> Moment {
        self.hand_off.minted_at
    }

    /// Whether only an offer was granted so far: a renewal must make it a whole lease.
    pub(crate) fn needs_confirmation(&self) -> bool {
        self.deadline() < believed_until(self.hand_off.since, self.held.ttl)
    }

    /// Until when the lease itself may be believed.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.lease_deadline().load(Ordering::Acquire))
    }

    /// Until when its holder may act on it: no longer than `max_hold` allows either.
    pub(crate) fn believable_until(&self) -> Moment {
        let deadline = self.deadline();
        self.max_hold_at()
            .map_or(deadline, |max_hold_at| max_hold_at.min(deadline))
    }

    /// When the holder must stop even though its lease could be renewed.
    pub(crate) fn max_hold_at(&self) -> Option<Moment> {
        self.max_hold.map(|max_hold| self.acquired_at + max_hold)
    }

    /// When the lease has certainly expired in the store, if it is not renewed from now on: a whole
    /// ttl after what is known, because a renewal whose reply was lost may have run.
    pub(crate) fn ends_before(&self, now: Moment) -> Moment {
        let ttl = self.held.ttl;
        self.deadline().max(now) + ttl + ttl / 10 + Duration::from_millis(100)
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        match *self.state() {
            BeliefState::Held | BeliefState::Suspect => {
                self.believable_until().saturating_since(now)
            }
            BeliefState::Lost(_) | BeliefState::Ended(_) => Duration::ZERO,
        }
    }

    pub(crate) fn standing(&self, now: Moment) -> Standing {
        match *self.state() {
            BeliefState::Lost(_) | BeliefState::Ended(_) => Standing::Lost,
            _ if now >= self.believable_until() => Standing::Lost,
            BeliefState::Held => Standing::Held,
            BeliefState::Suspect => Standing::Suspect,
        }
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        match *self.state() {
            BeliefState::Lost(reason) => Some(reason),
            BeliefState::Ended(reason) => reason,
            BeliefState::Held | BeliefState::Suspect => None,
        }
    }

    /// Whether its holder has lost or released it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state(), BeliefState::Lost(_) | BeliefState::Ended(_))
    }

    /// Cancelled when it is [over](Self::is_over).
    pub(crate) fn no_longer_held(&self) -> &CancellationToken {
        let token = self.no_longer_held.get_or_init(CancellationToken::new);
        // What ends it later finds the token.
        if self.is_over() {
            token.cancel();
        }
        token
    }

    /// The store granted a full ttl at a moment after `sent_at`. A reply that is read at or after
    /// the deadline changes nothing: by then callers were told that the lease is lost.
    pub(crate) fn extend(&self, sent_at: Moment, now: Moment) {
        let mut state = self.state();
        let in_time = now < self.deadline() || bug(Bug::LateRenewalCounts);
        if matches!(*state, BeliefState::Held | BeliefState::Suspect) && in_time {
            *state = BeliefState::Held;
            let deadline = believed_until(sent_at, self.held.ttl).as_nanos();
            self.lease_deadline().fetch_max(deadline, Ordering::AcqRel);
        }
    }

    /// A renewal got no useful reply. The deadline stays. True if the lease is still held.
    pub(crate) fn mark_suspect(&self) -> bool {
        let mut state = self.state();
        let held = matches!(*state, BeliefState::Held | BeliefState::Suspect);
        if held {
            *state = BeliefState::Suspect;
        }
        held
    }

    /// The lease is gone; true if that is news.
    pub(crate) fn mark_lost(&self, reason: LostReason) -> bool {
        let mut state = self.state();
        let news = matches!(*state, BeliefState::Held | BeliefState::Suspect);
        if news {
            *state = BeliefState::Lost(reason);
            drop(state);
            self.cancel_token();
        }
        news
    }

    /// The holder releases it. True if it had not before.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.state();
        let reason = match *state {
            BeliefState::Ended(_) => return false,
            BeliefState::Lost(reason) => Some(reason),
            BeliefState::Held | BeliefState::Suspect => None,
        };
        *state = BeliefState::Ended(reason);
        drop(state);
        self.cancel_token();
        true
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease {
            name: self.held.name.clone(),
            id: self.held.id.clone(),
            fence: self.fence,
            ttl: self.held.ttl,
            replicas: self.held.replicas,
            deadline: Some(self.deadline()),
        }
    }

    fn cancel_token(&self) {
        if let Some(token) = self.no_longer_held.get() {
            token.cancel();
        }
    }

    fn lease_deadline(&self) -> &AtomicU64 {
        match &self.deadline {
            LeaseDeadline::Own(deadline) => deadline,
            LeaseDeadline::Of(first) => first.lease_deadline(),
        }
    }

    /// The belief of the first holder of the same lease.
    fn first_holder(self: &Arc<Self>) -> Arc<Self> {
        match &self.deadline {
            LeaseDeadline::Own(_) => Arc::clone(self),
            LeaseDeadline::Of(first) => Arc::clone(first),
        }
    }

    fn state(&self) -> MutexGuard<'_, BeliefState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tenure_testkit::{ClientProcess, ClockShim};

    use super::*;
    use crate::layout::Layout;
    use crate::lease::{ClientId, LeaseId};
    use crate::moment::Clock;
    use crate::name::LockName;

    const TTL: Duration = Duration::from_secs(60);

    fn belief(sent_at: Moment) -> Arc<Belief> {
        let id = LeaseId::fresh(Layout::Native, &ClientId::fresh(), 1, TTL);
        let held = LeaseSpec::new(LockName::new("n").unwrap(), id, TTL);
        Arc::new(Belief::new(Grant {
            number: 1,
            held,
            fence: Fence::new(1),
            fences: 3,
            answered_at: sent_at,
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

    /// A suspend advances `CLOCK_BOOTTIME` but no timer. The machine cannot be suspended here, so
    /// the clock of another process is shifted instead.
    #[test]
    fn h17_belief_ends_by_the_clock_alone() {
        let Some(clock) = ClockShim::compile() else {
            return;
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "belief::tests::believe", "--ignored"])
            .arg("--nocapture");
        clock.apply(&mut command);
        let process = ClientProcess::spawn(&command);
        let belief = || {
            process.send_line("what do you believe?");
            loop {
                let line = process.expect_line(TTL);
                if let Some((_, answer)) = line.split_once("I believe: ") {
                    return answer.to_owned();
                }
            }
        };
        assert_eq!(belief(), "Held, true");
        clock.sleep_through(TTL);
        assert_eq!(belief(), "Lost, false");
    }

    #[test]
    #[ignore = "not a test, but the child process of the suspend test"]
    fn believe() {
        let belief = belief(Clock::Boot.now());
        for _ in std::io::stdin().lines() {
            let now = Clock::Boot.now();
            let remains = !belief.remaining(now).is_zero();
            println!("\nI believe: {:?}, {remains}", belief.standing(now));
        }
    }

    #[test]
    fn a_lease_is_handed_off_with_greater_fences_while_there_are_some() {
        let start = Moment::from_nanos(1_000);
        let bounds = HandOff::default();
        let first = belief(start);
        let now = start + Duration::from_micros(100);
        let second = first.for_next_holder(&bounds, now).unwrap();
        let third = second.for_next_holder(&bounds, now).unwrap();
        assert_eq!((second.fence, third.fence), (Fence::new(2), Fence::new(3)));
        assert_eq!(third.held.last_fence, Some(Fence::new(3)));
        assert!(
            third.for_next_holder(&bounds, now).is_none(),
            "no fence left"
        );
        // The lease is renewed, and all its holders share the deadline.
        third.extend(start + TTL / 3, start);
        assert_eq!(third.deadline(), first.deadline());
        assert_eq!(third.deadline(), believed_until(start + TTL / 3, TTL));
    }

    #[test]
    fn no_fence_is_handed_on_before_the_stores_clock_has_reached_it() {
        let start = Moment::from_nanos(1_000);
        let first = belief(start);
        let bounds = HandOff::default();
        let after = |micros| start + Duration::from_micros(micros);
        assert!(first.for_next_holder(&bounds, start).is_none());
        assert!(
            first.for_next_holder(&bounds, after(1)).is_none(),
            "less drift"
        );
        let second = first.for_next_holder(&bounds, after(2)).unwrap();
        assert!(second.for_next_holder(&bounds, after(2)).is_none());
        assert!(second.for_next_holder(&bounds, after(3)).is_some());
    }

    #[test]
    fn a_lease_is_handed_off_within_its_bounds_only() {
        let start = Moment::from_nanos(1_000);
        let bounds = HandOff {
            time: TTL * 2,
            ..HandOff::default()
        };
        let lease = belief(start);
        assert!(lease.for_next_holder(&bounds, start + TTL / 3).is_some());
        assert!(
            lease
                .for_next_holder(&bounds, start + TTL * 2 / 3)
                .is_none(),
            "too little left"
        );
        let soon = HandOff {
            time: TTL / 10,
            ..bounds
        };
        assert!(
            lease.for_next_holder(&soon, start + TTL / 3).is_none(),
            "too long among us"
        );
    }

    #[test]
    fn h11_a_late_answer_does_not_raise_the_dead() {
        let start = Moment::from_nanos(1_000);
        let belief = belief(start);
        assert!(belief.mark_lost(LostReason::Expired));
        belief.extend(start + TTL, start);
        assert_eq!(belief.standing(start + TTL), Standing::Lost);
        assert!(!belief.mark_lost(LostReason::Gone), "lost once is enough");
        assert_eq!(belief.lost_reason(), Some(LostReason::Expired));
    }

    #[test]
    fn h11_an_answer_read_after_the_deadline_moves_nothing() {
        let start = Moment::from_nanos(1_000);
        let belief = belief(start);
        let deadline = belief.deadline();
        assert_eq!(belief.standing(deadline), Standing::Lost);
        // Sent in time, and the store had it all along; but no timer has run yet.
        belief.extend(start + TTL / 3, deadline);
        assert_eq!(belief.standing(deadline), Standing::Lost);
    }

    #[test]
    fn only_a_good_answer_moves_the_deadline() {
        let start = Moment::from_nanos(1_000);
        let belief = belief(start);
        let before = belief.deadline();
        belief.mark_suspect();
        assert_eq!(belief.deadline(), before);
        assert_eq!(belief.standing(start), Standing::Suspect);
        let later = start + TTL / 3;
        belief.extend(later, later);
        assert_eq!(belief.deadline(), before + TTL / 3);
        assert_eq!(belief.standing(later), Standing::Held);
        // A reply to an older request changes nothing.
        belief.extend(start, later);
        assert_eq!(belief.deadline(), before + TTL / 3);
    }
}
