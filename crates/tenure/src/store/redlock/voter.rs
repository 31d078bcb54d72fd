//! One node of a Redlock: how to reach it, and whether its vote counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::leftovers::Leftover;
use crate::error::Error;
use crate::moment::{Clock, Moment};
use crate::seeded::{Bug, bug};
use crate::store::Failure;
use crate::store::redis::{Bounds, Connection, RedisStore};

/// Of how many connections the standing is remembered: the engine's and the callers' own, and
/// those before them.
const REMEMBERED: usize = 4;

/// How often to look whether a node must be reached again.
const LOOK: Duration = Duration::from_millis(250);
const PREPARE_LIMIT: Duration = Duration::from_secs(2);

pub(super) struct Voter {
    pub(super) store: Arc<RedisStore>,
    longest_ttl: Duration,
    clock: Clock,
    standings: Mutex<Vec<Standing>>,
    /// Why the node could not be asked the last time.
    trouble: Mutex<Option<Error>>,
    learning: AtomicBool,
    pub(super) leftovers: Mutex<Vec<Leftover>>,
    pub(super) leftover: Notify,
}

/// What is known of the server at the other end of a connection.
#[derive(Clone)]
struct Standing {
    connection: u64,
    run_id: Option<String>,
    /// Since when the server runs, and from when on it may vote.
    started: Moment,
    votes_from: Moment,
    bounds: Bounds,
}

/// Whether a node may be asked.
pub(super) enum Readiness {
    Ready(Ready),
    /// It may have forgotten a lease that has not ended yet.
    Young {
        age: Duration,
        until: Moment,
    },
    NotReached,
}

/// A node that may be asked: how, and what it accepts.
pub(super) struct Ready {
    pub(super) connection: Arc<Connection>,
    pub(super) bounds: Bounds,
}

impl Voter {
    pub(super) fn new(store: Arc<RedisStore>, longest_ttl: Duration) -> Self {
        Self {
            store,
            longest_ttl,
            clock: Clock::Boot,
            standings: Mutex::default(),
            trouble: Mutex::default(),
            learning: AtomicBool::new(false),
            leftovers: Mutex::default(),
            leftover: Notify::new(),
        }
    }

    /// Whether this node can be asked at once, by a caller's own task: on a connection that it
    /// drives itself, or else on the engine's.
    pub(super) fn ready_here(self: &Arc<Self>, engine: &Handle) -> Readiness {
        let Some(connection) = self.store.connection_here() else {
            return self.ready();
        };
        if self.standing(&connection).is_some() {
            return self.readiness(connection);
        }
        if !self.learning.swap(true, Ordering::AcqRel) {
            // It may lead to another process than the engine's does.
            let voter = Arc::clone(self);
            engine.spawn(async move {
                let limit = voter.clock.now() + PREPARE_LIMIT;
                let _ = voter.learn(&connection, limit).await;
                voter.learning.store(false, Ordering::Release);
            });
        }
        self.ready()
    }

    /// Whether this node can be asked at once, by the engine.
    pub(super) fn ready(&self) -> Readiness {
        match self.store.live_connection() {
            Some(connection) => self.readiness(connection),
            None => Readiness::NotReached,
        }
    }

    fn readiness(&self, connection: Arc<Connection>) -> Readiness {
        let now = self.clock.now();
        match self.standing(&connection) {
            None => Readiness::NotReached,
            Some(standing) if now < standing.votes_from => Readiness::Young {
                age: now.saturating_since(standing.started),
                until: standing.votes_from,
            },
            Some(standing) => Readiness::Ready(Ready {
                connection,
                bounds: standing.bounds,
            }),
        }
    }

    /// Connects, and learns whether the node may vote.
    pub(super) async fn prepare(&self, limit: Moment) -> Result<(), Failure> {
        let prepared = self.try_prepare(limit).await;
        let trouble = prepared.as_ref().err().map(|failure| failure.error.share());
        *lock(&self.trouble) = trouble;
        prepared
    }

    async fn try_prepare(&self, limit: Moment) -> Result<(), Failure> {
        let connection = self.store.connection(limit).await?;
        self.learn(&connection, limit).await
    }

    async fn learn(&self, connection: &Connection, limit: Moment) -> Result<(), Failure> {
        if self.standing(connection).is_some() {
            return Ok(());
        }
        let vitals = self.store.vitals(connection, limit).await?;
        // It is at least this old by now. When it was asked it need not have been: the question may
        // have travelled for longer than the second that its age is rounded by.
        let started = self.clock.now().before(vitals.uptime);
        let longest_ttl = self.longest_ttl;
        let (votes_from, bounds) = if vitals.keeps_all || bug(Bug::RedlockYoungNodeVotes) {
            (started, Bounds::of_one_that_keeps_all(longest_ttl))
        } else {
            let rested = started + longest_ttl;
            (rested, Bounds::of_one_that_may_forget(longest_ttl))
        };
        let mut standings = lock(&self.standings);
        if standings.len() >= REMEMBERED {
            standings.remove(0);
        }
        standings.push(Standing {
            connection: connection.id,
            run_id: vitals.run_id,
            started,
            votes_from,
            bounds,
        });
        Ok(())
    }

    fn standing(&self, connection: &Connection) -> Option<Standing> {
        let standings = lock(&self.standings);
        let known = standings.iter().find(|it| it.connection == connection.id);
        known.cloned()
    }

    /// The server's process, if it is known.
    pub(super) fn run_id(&self) -> Option<String> {
        lock(&self.standings).last()?.run_id.clone()
    }

    /// Why it cannot be asked, for people.
    pub(super) fn reason(&self) -> String {
        match self.ready() {
            Readiness::Ready(_) => format!("`{}` answers", self.store.target()),
            Readiness::Young { age, until } => {
                let left = until.saturating_since(self.clock.now());
                format!(
                    "`{}` is {age:.0?} old and may have forgotten a lease: its vote counts in \
                     {left:.0?}, or at once with `appendonly yes` and `appendfsync always`",
                    self.store.target()
                )
            }
            Readiness::NotReached => {
                let trouble = lock(&self.trouble);
                trouble.as_ref().map_or_else(
                    || format!("`{}` is not connected yet", self.store.target()),
                    ToString::to_string,
                )
            }
        }
    }
}

/// Sees to it that a node which was away is asked again when it is back. Ends with the engine.
pub(super) async fn keep_ready(voter: Arc<Voter>) {
    loop {
        voter.clock.sleep_until(voter.clock.now() + LOOK).await;
        if matches!(voter.ready(), Readiness::NotReached) {
            // What it says is remembered, for the next error.
            let _ = voter.prepare(voter.clock.now() + PREPARE_LIMIT).await;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
