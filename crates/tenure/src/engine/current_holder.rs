//! What a line waits for: the holder that is in the way.

use std::time::Duration;

use crate::holder::{ClientRecord, Holder};
use crate::lease::ClientId;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::Busy;

/// How often to look at a lock whose holder is not Tenure's, and so may release it in silence.
const POLL_FOREIGN: Duration = Duration::from_secs(1);
/// How long those who stand far behind sleep at most, if those before them look no more rarely.
const FAR_BEHIND_SLEEP_MAX: Duration = Duration::from_secs(30);
/// A holder is looked up in the clients' records once it has been in the way for this long. Before
/// that its record does not list it.
const LOOK_UP_AFTER: Duration = Duration::from_millis(700);
/// How long before a waiter's limit it is looked up at the latest, so that the error can name it.
const LOOK_UP_TAKES: Duration = Duration::from_millis(20);

/// The holder whom a line waits for.
pub(super) struct CurrentHolder {
    busy: Busy,
    /// When the store said so.
    seen_at: Moment,
    since: Moment,
    /// When it was last asked who it is, and how often.
    looked_up_at: Option<Moment>,
    look_ups: u32,
    holder: Holder,
}

impl CurrentHolder {
    pub(super) fn new(busy: Busy, now: Moment) -> Self {
        Self {
            holder: Holder::from_busy(&busy),
            busy,
            seen_at: now,
            since: now,
            looked_up_at: None,
            look_ups: 0,
        }
    }

    /// The same holder again, or another one.
    pub(super) fn update(known: &mut Option<Self>, busy: Busy, now: Moment) {
        match known {
            Some(known) if known.busy.holder == busy.holder => {
                known.busy = busy;
                known.seen_at = now;
            }
            known => *known = Some(Self::new(busy, now)),
        }
    }

    /// The holder, as far as it is known by now.
    pub(super) fn holder(&self, now: Moment) -> Holder {
        let passed = now.saturating_since(self.seen_at);
        let remaining = self.busy.remaining;
        Holder {
            remaining: remaining.map(|remaining| remaining.saturating_sub(passed)),
            ..self.holder.clone()
        }
    }

    /// The same holder, or the next one: the lock is held for so long.
    pub(super) fn set_remaining(&mut self, remaining: Duration, now: Moment) {
        self.busy.remaining = Some(remaining);
        self.seen_at = now;
    }

    /// Whether the lease that was seen should have ended by now.
    pub(super) fn has_expired(&self, now: Moment) -> bool {
        let passed = now.saturating_since(self.seen_at);
        self.busy
            .remaining
            .is_some_and(|remaining| passed >= remaining)
    }

    /// How long to sleep though no message comes: until the lease ends, or a third of its ttl.
    pub(super) fn poll_after(&self) -> Duration {
        if bug(Bug::NoTimer) {
            return Duration::from_secs(24 * 60 * 60);
        }
        let fallback = self.busy.holder.ttl().map_or(POLL_FOREIGN, |ttl| ttl / 3);
        // One millisecond more: a key ends after its last millisecond.
        let end = self
            .busy
            .remaining
            .map(|left| left + Duration::from_millis(1));
        end.map_or(fallback, |end| end.min(fallback))
    }

    /// The same where others look after the lock: until the lease ends. But not if that may be in
    /// silence: those others may have left, and nobody would tell.
    pub(super) fn poll_after_far_behind(&self) -> Duration {
        let patience = self.poll_after();
        let left = self.busy.remaining.unwrap_or(patience);
        match self.busy.holder.ttl() {
            Some(_) => left.min(FAR_BEHIND_SLEEP_MAX).max(patience),
            None => patience,
        }
    }

    /// When to look up who it is, if that is still to be done and can be: in time for a waiter
    /// whose limit comes sooner, and again if its record did not list it yet.
    pub(super) fn look_up_at(&self, limit: Option<Moment>) -> Option<Moment> {
        // Ever more rarely: a client that may not write its record is never listed.
        let patience = LOOK_UP_AFTER * (1 << self.look_ups.min(6));
        let at = self.looked_up_at.unwrap_or(self.since) + patience;
        let at = limit.map_or(at, |limit| at.min(limit.before(LOOK_UP_TAKES)));
        let at = self
            .looked_up_at
            .map_or(at, |last| at.max(last + LOOK_UP_TAKES));
        let wanted = self.holder.client.is_none() && self.busy.holder.is_tenure();
        wanted.then_some(at)
    }

    /// Whose record tells who it is.
    pub(super) fn begin_look_up(&mut self, now: Moment) -> Option<ClientId> {
        self.looked_up_at = Some(now);
        self.look_ups += 1;
        self.busy.holder.client()
    }

    pub(super) fn set_client(&mut self, record: Option<ClientRecord>) {
        self.holder.client = record;
    }
}
