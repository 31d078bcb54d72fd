//! The holder that a local queue waits for.

use std::time::Duration;

use crate::holder::{ClientRecord, Holder};
use crate::lease::ClientId;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::Busy;

/// How often to poll a lock whose holder is another library, which may release without publishing.
const POLL_FOREIGN: Duration = Duration::from_secs(1);
/// How often to poll a lock that readers share, or a semaphore: each lease has its own ttl.
const POLL_READERS: Duration = Duration::from_secs(5);
/// How long a waiter far back in the queue sleeps at most, unless those ahead of it sleep even
/// longer.
const FAR_BEHIND_SLEEP_MAX: Duration = Duration::from_secs(30);
/// A holder is looked up in the client records after blocking us for this long. Earlier, its record
/// does not list the lease yet.
const LOOK_UP_AFTER: Duration = Duration::from_millis(700);
/// How long before a waiter's limit the holder is looked up at the latest, so that the error can
/// name it.
const LOOK_UP_TAKES: Duration = Duration::from_millis(20);

/// The holder that a local queue waits for.
pub(super) struct CurrentHolder {
    busy: Busy,
    /// When the store reported it.
    seen_at: Moment,
    since: Moment,
    /// When its client was last looked up, and how often.
    looked_up_at: Option<Moment>,
    look_ups: u32,
    holder: Holder,
}

impl CurrentHolder {
    pub(super) fn new(busy: Busy, now: Moment) -> Self {
        Self {
            holder: Holder::from(&busy),
            busy,
            seen_at: now,
            since: now,
            looked_up_at: None,
            look_ups: 0,
        }
    }

    /// Notes the same holder again, or a new one.
    pub(super) fn update(known: &mut Option<Self>, busy: Busy, now: Moment) {
        match known {
            Some(known) if known.busy.holder == busy.holder => {
                known.busy = busy;
                known.seen_at = now;
            }
            known => *known = Some(Self::new(busy, now)),
        }
    }

    /// What is known about the holder now.
    pub(super) fn holder(&self, now: Moment) -> Holder {
        let passed = now.saturating_since(self.seen_at);
        let remaining = self.busy.remaining;
        Holder {
            remaining: remaining.map(|remaining| remaining.saturating_sub(passed)),
            ..self.holder.clone()
        }
    }

    /// The lock is held for this long, by the same holder or the next one.
    pub(super) fn set_remaining(&mut self, remaining: Duration, now: Moment) {
        self.busy.remaining = Some(remaining);
        self.seen_at = now;
    }

    /// Whether the lease should have expired by now.
    pub(super) fn has_expired(&self, now: Moment) -> bool {
        let passed = now.saturating_since(self.seen_at);
        self.busy
            .remaining
            .is_some_and(|remaining| passed >= remaining)
    }

    /// How long to sleep without a message: until the lease ends, or a third of its ttl, or as long as
    /// the store says.
    pub(super) fn poll_after(&self) -> Duration {
        if bug(Bug::NoTimer) {
            return Duration::from_secs(24 * 60 * 60);
        }
        let fallback = self.poll_interval();
        // One millisecond more: a key expires after its last millisecond.
        let end = self
            .busy
            .remaining
            .map(|left| left + Duration::from_millis(1));
        let ask_after = self.busy.ask_after.unwrap_or(fallback);
        end.map_or(fallback, |end| end.min(fallback)).min(ask_after)
    }

    /// The same for a waiter far back in the queue: until the lease ends. But a foreign holder may
    /// release without publishing, and those ahead of us may be gone, so then poll as usual.
    pub(super) fn poll_after_far_behind(&self) -> Duration {
        let interval = self.poll_after();
        let left = self.busy.remaining.unwrap_or(interval);
        let holder = &self.busy.holder;
        let publishes = holder.is_tenure() || holder.mode() != Mode::Exclusive;
        if publishes {
            left.min(FAR_BEHIND_SLEEP_MAX).max(interval)
        } else {
            interval
        }
    }

    /// How long to rely on messages alone.
    fn poll_interval(&self) -> Duration {
        let holder = &self.busy.holder;
        match holder.ttl() {
            Some(ttl) => ttl / 3,
            None if holder.mode() != Mode::Exclusive => POLL_READERS,
            None => POLL_FOREIGN,
        }
    }

    /// When to look up the holder's client, if that is still needed and possible: in time for a
    /// waiter with an earlier limit, and again if its record did not list it yet.
    pub(super) fn look_up_at(&self, limit: Option<Moment>) -> Option<Moment> {
        // Less and less often: a client without permission to write its record is never listed.
        let interval = LOOK_UP_AFTER * (1 << self.look_ups.min(6));
        let at = self.looked_up_at.unwrap_or(self.since) + interval;
        let at = limit.map_or(at, |limit| at.min(limit.before(LOOK_UP_TAKES)));
        let at = self
            .looked_up_at
            .map_or(at, |last| at.max(last + LOOK_UP_TAKES));
        let wanted = self.holder.client.is_none() && self.busy.holder.is_tenure();
        wanted.then_some(at)
    }

    /// The client whose record describes the holder.
    pub(super) fn begin_look_up(&mut self, now: Moment) -> Option<ClientId> {
        self.looked_up_at = Some(now);
        self.look_ups += 1;
        self.busy.holder.client()
    }

    pub(super) fn set_client(&mut self, record: Option<ClientRecord>) {
        self.holder.client = record;
    }
}
