//! Sentinels: where the primary is, and when it moves.
//!
//! Every sentinel of the URL has a connection of its own. It announces failovers there, and is also
//! polled once a second, because an announcement can be lost. As soon as one of them knows of a
//! newer failover, all connections to the old primary are closed: writes there would be lost.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::view::{PrimaryAddress, View};
use super::endpoint::Endpoint;
use super::reconnect::Reconnector;
use super::server::Server;
use super::server_error;
use crate::error::{Error, ErrorKind};
use crate::moment::Clock;
use crate::seeded::{Bug, bug};
use crate::stats::Stats;
use crate::store::Failure;
use crate::store::redis::command::cmd;
use crate::url::SentinelTarget;

mod monitor;
mod view;

/// How long to wait for the other sentinels when one has named the primary: they may know a newer
/// one.
const GRACE: Duration = Duration::from_millis(50);
/// How long to wait for the first sentinel to name the primary. Less than connecting may take, so
/// that the error can report on each sentinel.
const LOCATE_LIMIT: Duration = Duration::from_millis(1_500);

pub(super) struct Sentinels {
    target: SentinelTarget,
    /// Wakes each monitor: query your sentinel now.
    wakeups: Vec<Notify>,
    /// A std mutex: never held across an await.
    state: Mutex<SentinelState>,
    /// A view has changed.
    learnt: watch::Sender<()>,
}

struct SentinelState {
    /// Counts the queries; a view that answers this one is at least as new.
    round: u64,
    views: Vec<Option<View>>,
    /// Which query each view answers.
    answered: Vec<u64>,
    primary: Option<Primary>,
}

struct Primary {
    named: PrimaryAddress,
    endpoint: Endpoint,
}

impl Sentinels {
    /// Starts to watch. Must be called on the engine.
    pub(super) fn watch(target: SentinelTarget, stats: &Arc<Stats>) -> Arc<Self> {
        let count = target.sentinels.len();
        let sentinels = Arc::new(Self {
            wakeups: (0..count).map(|_| Notify::new()).collect(),
            state: Mutex::new(SentinelState {
                round: 0,
                views: (0..count).map(|_| None).collect(),
                answered: vec![0; count],
                primary: None,
            }),
            learnt: watch::Sender::new(()),
            target,
        });
        for (at, target) in sentinels.target.sentinels.iter().enumerate() {
            let (sender, pushes) = mpsc::unbounded_channel();
            let server = Server::sentinel(target.clone(), Arc::clone(stats));
            let reconnector = Reconnector::with_pushes(server, sender, Some(|| cmd("PING")));
            tokio::spawn(monitor::run(
                Arc::clone(&sentinels),
                at,
                reconnector,
                pushes,
            ));
        }
        sentinels
    }

    pub(super) fn target(&self) -> &SentinelTarget {
        &self.target
    }

    /// Where the primary is now. All sentinels are queried at once, so that a dead one costs
    /// little.
    pub(super) async fn locate(&self) -> Result<Endpoint, Failure> {
        let mut learnt = self.learnt.subscribe();
        let round = self.query_all();
        let clock = Clock::Boot;
        let mut until = clock.now() + LOCATE_LIMIT;
        let mut primary_named = false;
        loop {
            learnt.mark_unchanged();
            let heard = self.replies_in(round);
            let now = clock.now();
            if heard.all || now >= until {
                return self.current_endpoint(round);
            }
            if heard.named && !primary_named {
                primary_named = true;
                until = until.min(now + GRACE);
            }
            let left = until.saturating_since(now);
            let _ = tokio::time::timeout(left, learnt.changed()).await;
        }
    }

    fn query_all(&self) -> u64 {
        let round = {
            let mut state = self.state();
            state.round += 1;
            state.round
        };
        self.wakeups.iter().for_each(Notify::notify_one);
        round
    }

    fn round(&self) -> u64 {
        self.state().round
    }

    /// Notes the reply of a sentinel in this round, and leaves the old primary if it has moved.
    fn note_view(&self, at: usize, round: u64, view: View) {
        let old_primary = {
            let mut state = self.state();
            state.views[at] = Some(view);
            state.answered[at] = round;
            state.update_primary(&self.target)
        };
        if let Some(old_primary) = old_primary {
            // After unlocking: woken tasks may query at once.
            old_primary.cancel();
        }
        self.learnt.send_replace(());
    }

    fn replies_in(&self, round: u64) -> RoundReplies {
        let state = self.state();
        let mut fresh = state.fresh(round);
        RoundReplies {
            all: state.answered.iter().all(|answered| *answered >= round),
            named: fresh.any(|view| view.named().is_some()),
        }
    }

    /// Where the primary is, if a sentinel has just named it.
    fn current_endpoint(&self, round: u64) -> Result<Endpoint, Failure> {
        let state = self.state();
        let named = state.fresh(round).any(|view| view.named().is_some());
        match &state.primary {
            Some(primary) if named => Ok(primary.endpoint.clone()),
            _ => Err(self.no_primary_error(&state, round)),
        }
    }

    /// Why there is no primary to connect to, sentinel by sentinel.
    fn no_primary_error(&self, state: &SentinelState, round: u64) -> Failure {
        let fresh: Vec<&View> = state.fresh(round).collect();
        let ignorant = fresh
            .iter()
            .any(|view| matches!(view, View::Ignorant { .. }));
        let failures = || {
            fresh.iter().filter_map(|view| match view {
                View::Silent(failure) => Some(failure),
                _ => None,
            })
        };
        let denied = |failure: &Failure| failure.error.kind() == ErrorKind::Denied;
        let all_denied = fresh.len() == state.views.len() && failures().all(denied);
        let (kind, mut text) = if ignorant {
            let text = format!(
                "the Sentinels do not know a master named `{}`",
                self.target.master
            );
            (ErrorKind::InvalidUrl, text)
        } else {
            let text = format!("no Sentinel of `{}` reports its primary", self.target);
            let kind = if all_denied {
                ErrorKind::Denied
            } else {
                ErrorKind::Unavailable
            };
            (kind, text)
        };
        for (at, (view, answered)) in state.views.iter().zip(&state.answered).enumerate() {
            let view = view.as_ref().filter(|_| *answered >= round);
            let _ = write!(text, "; {}", self.report(at, view));
        }
        let wants_password =
            |failure| denied(failure) && !server_error::is_certificate_error(failure);
        if failures().any(wants_password) {
            text.push_str(
                "; the credentials for the Sentinels are `sentinel_username` and \
                 `sentinel_password`",
            );
        }
        let for_good =
            fresh.len() == state.views.len() && failures().all(|failure| !failure.transient);
        Failure {
            error: Error::new(kind, text),
            transient: !for_good,
            in_flight: None,
        }
    }

    /// The reply of one sentinel, for an error message.
    fn report(&self, at: usize, view: Option<&View>) -> String {
        let address = &self.target.sentinels[at].address;
        match view {
            Some(View::Knows(named)) => {
                format!("`{address}` reports `{}:{}`", named.host, named.port)
            }
            Some(View::Ignorant { knows }) if knows.is_empty() => {
                format!("`{address}` monitors none")
            }
            Some(View::Ignorant { knows }) => format!("`{address}` knows `{}`", knows.join("`, `")),
            Some(View::Silent(failure)) => failure.error.to_string(),
            None => format!("`{address}` did not answer in time"),
        }
    }

    fn state(&self) -> MutexGuard<'_, SentinelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which replies have come in a round.
struct RoundReplies {
    all: bool,
    named: bool,
}

impl SentinelState {
    /// The views that answer this query or a later one.
    fn fresh(&self, round: u64) -> impl Iterator<Item = &View> {
        let views = self.views.iter().zip(&self.answered);
        let fresh = views.filter(move |(_, answered)| **answered >= round);
        fresh.filter_map(|(view, _)| view.as_ref())
    }

    /// Decides whether the primary has moved; returns what to cancel.
    fn update_primary(&mut self, target: &SentinelTarget) -> Option<CancellationToken> {
        let present = self.primary.as_ref().map(|primary| &primary.named);
        let named = view::choose_primary(&self.views, present)?;
        // Also if only the epoch differs: there was a failover and one back.
        if present == Some(named) || (present.is_some() && bug(Bug::StaysWithOldMaster)) {
            return None;
        }
        let (host, port) = (&named.host, named.port);
        if present.is_some() {
            tracing::info!(master = %target.master, %host, port, "redis.master_moved");
        }
        let primary = Primary {
            named: named.clone(),
            endpoint: Endpoint::new(target.server.at(host, port)),
        };
        let old_primary = self.primary.replace(primary)?;
        Some(old_primary.endpoint.moved)
    }
}
