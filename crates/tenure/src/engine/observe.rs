//! Follows an election for one observer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::backoff::RETRY_PAUSE;
use crate::core::Core;
use crate::error::Error;
use crate::holder::Holder;
use crate::leader::{LastReport, Leader};
use crate::lease::TTL_MIN;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::Failure;

/// How long to wait after the first sign of a change. A hand-over is several changes, and a Redlock
/// has several nodes: one look is enough for all of them.
const SETTLE: Duration = Duration::from_millis(10);
/// How long after the end of a lease to look: a server ends it a little late.
const AFTER_END: Duration = Duration::from_millis(2);

/// What an observer reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// It has not looked yet.
    Nothing,
    Leader(Option<Leader>),
    Failed(Error),
}

/// One observer: it looks when the store tells of a change, when the lease that it knows ends, and
/// every third of a ttl, because a message may be lost.
pub(crate) struct Observation {
    core: Arc<Core>,
    name: LockName,
    /// The ttl of the election, for the time when nobody leads.
    ttl: Duration,
    changed: Arc<Notify>,
    reports: watch::Sender<Report>,
    /// What was reported last, and when it must have ended unless it was renewed.
    reported: LastReport,
    ends_at: Option<Moment>,
    /// The leader with the greatest term that was reported.
    greatest: Option<Leader>,
    failing_since: Option<Moment>,
    /// Whether the present failure was reported.
    is_failure_known: bool,
}

impl Observation {
    pub(crate) fn new(
        core: Arc<Core>,
        name: LockName,
        ttl: Duration,
        reports: watch::Sender<Report>,
    ) -> Self {
        Self {
            changed: core.observers.add(&name),
            core,
            name,
            ttl,
            reports,
            reported: LastReport::Nothing,
            ends_at: None,
            greatest: None,
            failing_since: None,
            is_failure_known: false,
        }
    }

    /// Looks and reports until the observer is dropped or the client is closed.
    pub(crate) async fn run(mut self) {
        while !self.core.is_closed() {
            let limit = self.core.clock.now() + self.core.settings.unreachable_after;
            let seen = self.core.store.observe(self.core.id, &self.name, limit);
            let look_again_at = match seen.await {
                Ok(state) => self.seen(state.map(Holder::from).and_then(Leader::of)),
                Err(failure) => self.failed(failure),
            };
            let (changed, clock) = (Arc::clone(&self.changed), self.core.clock.clone());
            tokio::select! {
                () = changed.notified() => tokio::time::sleep(SETTLE).await,
                () = clock.sleep_until(look_again_at) => {}
                () = self.reports.closed() => return,
            }
        }
        self.reports.send_replace(Report::Failed(Error::closed()));
    }

    /// Reports what was seen, if it is new, and returns when to look again.
    fn seen(&mut self, leader: Option<Leader>) -> Moment {
        let now = self.core.clock.now();
        self.failing_since = None;
        self.is_failure_known = false;
        let is_older = |leader: &Leader| {
            let newer = self.greatest.as_ref();
            newer.is_some_and(|newer| leader.is_older_than(newer)) && !bug(Bug::ObserverGoesBack)
        };
        let leader = match leader {
            // A server that was replaced, or whose clock was set back. What is known stays, but not
            // beyond its own end.
            Some(leader) if is_older(&leader) => {
                let ends_at = self.ends_at.filter(|ends_at| now < *ends_at);
                if let Some(ends_at) = ends_at {
                    return ends_at.min(now + self.ttl / 3);
                }
                None
            }
            leader => leader,
        };
        let ttl = leader.as_ref().and_then(|leader| leader.lease.ttl());
        let remaining = leader.as_ref().and_then(|leader| leader.remaining);
        self.ends_at = remaining.map(|remaining| now + remaining + AFTER_END);
        if leader.as_ref().is_some_and(|leader| leader.term.is_some()) {
            self.greatest.clone_from(&leader);
        }
        self.report(leader);
        // An id can have any ttl.
        let fallback = now + ttl.unwrap_or(self.ttl).max(TTL_MIN) / 3;
        self.ends_at.map_or(fallback, |end| end.min(fallback))
    }

    fn report(&mut self, leader: Option<Leader>) {
        if !self.reported.is(leader.as_ref()) {
            self.reported.set(leader.as_ref());
            self.reports.send_replace(Report::Leader(leader));
        }
    }

    /// Reports an error that lasts, once, and returns when to look again.
    fn failed(&mut self, failure: Failure) -> Moment {
        let now = self.core.clock.now();
        let since = *self.failing_since.get_or_insert(now);
        let lasts = now >= since + self.core.settings.unreachable_after;
        if (lasts || !failure.transient) && !self.is_failure_known {
            self.is_failure_known = true;
            // The next look that succeeds is news, whatever it sees.
            self.reported = LastReport::Nothing;
            self.reports.send_replace(Report::Failed(failure.error));
        }
        now + if failure.transient {
            RETRY_PAUSE
        } else {
            self.ttl.max(TTL_MIN) / 3
        }
    }
}
