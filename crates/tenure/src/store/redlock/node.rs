//! One node of a Redlock: its connections, and whether its vote counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::deferred_release::DeferredRelease;
use super::node_age::NodeAges;
use crate::error::Error;
use crate::moment::{Clock, Moment};
use crate::seeded::{Bug, bug};
use crate::store::Failure;
use crate::store::redis::{ClockBounds, Connection, RedisStore};

/// For how many connections the vote status is remembered: the engine's and the callers' own, and
/// the ones before them.
const REMEMBERED: usize = 4;

/// How often to check whether a node must be reconnected.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const PREPARE_LIMIT: Duration = Duration::from_secs(2);

pub(super) struct RedlockNode {
    pub(super) store: Arc<RedisStore>,
    /// Its index among the nodes.
    index: usize,
    pub(super) ages: Arc<NodeAges>,
    pub(super) clock: Clock,
    statuses: Mutex<Vec<VoteStatus>>,
    /// Why the node could not be used the last time.
    last_error: Mutex<Option<Error>>,
    learning: AtomicBool,
    pub(super) deferred: Mutex<Vec<DeferredRelease>>,
    pub(super) deferred_added: Notify,
}

/// What is known about the server at the other end of a connection.
struct VoteStatus {
    connection: u64,
    run_id: Option<String>,
    /// Since when the server has been running as far as is known, and from when on it may vote.
    started: Moment,
    votes_from: Moment,
    /// The settings it lacks to vote right after a restart.
    lacks: Vec<&'static str>,
}

/// Whether a node is ready to vote.
pub(super) enum Readiness {
    Ready(Ready),
    /// It may have forgotten a lease that has not expired yet.
    Young {
        age: Duration,
        until: Moment,
        lacks: Vec<&'static str>,
    },
    NotReached,
}

/// A node that is ready to vote: its connection, and what it accepts.
pub(super) struct Ready {
    pub(super) connection: Arc<Connection>,
    pub(super) bounds: ClockBounds,
}

impl RedlockNode {
    pub(super) fn new(store: Arc<RedisStore>, index: usize, ages: Arc<NodeAges>) -> Self {
        Self {
            store,
            index,
            ages,
            clock: Clock::Boot,
            statuses: Mutex::default(),
            last_error: Mutex::default(),
            learning: AtomicBool::new(false),
            deferred: Mutex::default(),
            deferred_added: Notify::new(),
        }
    }

    /// Whether this node is ready for a request from the caller's own task: on a connection that
    /// the caller drives, or else on the engine's.
    pub(super) fn ready_on_caller(self: &Arc<Self>, engine: &Handle) -> Readiness {
        let Some(connection) = self.store.caller_connection() else {
            return self.ready();
        };
        if self.knows(&connection) {
            return self.readiness(connection);
        }
        if !self.learning.swap(true, Ordering::AcqRel) {
            // It may lead to another process than the engine's connection.
            let node = Arc::clone(self);
            engine.spawn(async move {
                let limit = node.clock.now() + PREPARE_LIMIT;
                let _ = node.load_state(&connection, limit).await;
                node.learning.store(false, Ordering::Release);
            });
        }
        self.ready()
    }

    /// Whether this node is ready for a request from the engine.
    pub(super) fn ready(&self) -> Readiness {
        match self.store.live_connection() {
            Some(connection) => self.readiness(connection),
            None => Readiness::NotReached,
        }
    }

    fn readiness(&self, connection: Arc<Connection>) -> Readiness {
        let now = self.clock.now();
        let statuses = lock(&self.statuses);
        match statuses.iter().find(|it| it.connection == connection.id) {
            None => Readiness::NotReached,
            Some(status) if now < status.votes_from => Readiness::Young {
                age: now.saturating_since(status.started),
                until: status.votes_from,
                lacks: status.lacks.clone(),
            },
            Some(status) => Readiness::Ready(Ready {
                connection,
                bounds: status.bounds(),
            }),
        }
    }

    /// Connects, and learns whether the node may vote.
    pub(super) async fn prepare(&self, limit: Moment) -> Result<(), Failure> {
        let prepared = self.try_prepare(limit).await;
        let last_error = prepared.as_ref().err().map(|failure| failure.error.share());
        *lock(&self.last_error) = last_error;
        prepared
    }

    async fn try_prepare(&self, limit: Moment) -> Result<(), Failure> {
        let connection = self.store.connection(limit).await?;
        self.load_state(&connection, limit).await
    }

    async fn load_state(&self, connection: &Connection, limit: Moment) -> Result<(), Failure> {
        if self.knows(connection) {
            return Ok(());
        }
        let node_state = self.store.node_state(connection, limit).await?;
        // By now it is at least this old. When it replied it need not have been: the reply may have
        // taken longer than the second by which its age is rounded.
        let now = self.clock.now();
        if let Some(run_id) = &node_state.run_id {
            self.ages
                .note_process(self.index, run_id, node_state.uptime, now);
        }
        self.ages.note_stored(self.index, node_state.stored, now);
        let mut status = VoteStatus {
            connection: connection.id,
            run_id: node_state.run_id,
            started: now,
            votes_from: now,
            lacks: node_state.lacks,
        };
        status.assess(&self.ages);
        let mut statuses = lock(&self.statuses);
        if statuses.len() >= REMEMBERED {
            statuses.remove(0);
        }
        statuses.push(status);
        Ok(())
    }

    /// Something was learned about the nodes that may change when this one votes.
    pub(super) fn reassess(&self) {
        let mut statuses = lock(&self.statuses);
        let statuses = statuses.iter_mut();
        statuses.for_each(|status| status.assess(&self.ages));
    }

    fn knows(&self, connection: &Connection) -> bool {
        let statuses = lock(&self.statuses);
        statuses.iter().any(|it| it.connection == connection.id)
    }

    /// The run id of the server, if it is known.
    pub(super) fn run_id(&self) -> Option<String> {
        lock(&self.statuses).last()?.run_id.clone()
    }

    /// Why it cannot be used, for an error message.
    pub(super) fn reason(&self) -> String {
        match self.ready() {
            Readiness::Ready(_) => format!("`{}` responds", self.store.target()),
            Readiness::Young { age, until, lacks } => {
                let left = until.saturating_since(self.clock.now());
                format!(
                    "`{}` has run for {age:.0?} as far as known, and may have lost a lease: its \
                     vote counts in {left:.0?}, or immediately after each restart with {}",
                    self.store.target(),
                    lacks.join(" and ")
                )
            }
            Readiness::NotReached => {
                let last_error = lock(&self.last_error);
                last_error.as_ref().map_or_else(
                    || format!("`{}` is not connected yet", self.store.target()),
                    ToString::to_string,
                )
            }
        }
    }
}

impl VoteStatus {
    /// Whether every reply is sent only after its data is on disk.
    fn keeps_all(&self) -> bool {
        self.lacks.is_empty() || bug(Bug::RedlockYoungNodeVotes)
    }

    fn assess(&mut self, ages: &NodeAges) {
        let run_id = self.run_id.as_deref();
        if let Some(started) = run_id.and_then(|run_id| ages.started(run_id)) {
            self.started = started;
        }
        self.votes_from = if self.keeps_all() {
            self.started
        } else {
            self.started + ages.vote_delay()
        };
    }

    fn bounds(&self) -> ClockBounds {
        if self.keeps_all() {
            ClockBounds::KEEPS_ALL
        } else {
            ClockBounds::MAY_FORGET
        }
    }
}

/// Reconnects a node that was away. Ends with the engine.
pub(super) async fn keep_ready(node: Arc<RedlockNode>) {
    loop {
        node.clock
            .sleep_until(node.clock.now() + CHECK_INTERVAL)
            .await;
        if matches!(node.ready(), Readiness::NotReached) {
            // Its error is remembered for the next error message.
            let _ = node.prepare(node.clock.now() + PREPARE_LIMIT).await;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
