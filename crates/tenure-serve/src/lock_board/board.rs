//! The board: the last known state of all locks, of all clients, and their events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure_view::changes::{Change, Event, Known};
use tenure_view::holders::LockReport;
use tenure_view::time::moment;
use tokio::sync::Notify;

use super::history::{Histories, Hold};
use super::locks_text::LocksText;
use crate::feed::outgoing::Outgoing;
use crate::feed::{Feed, Source};
use crate::locks::metrics::Seen;
use crate::locks::terraform_info;
use crate::log::Log;

/// How many recently acquired locks each poll checks.
const FRESH_MAX: usize = 50;

/// All locks as of the last poll.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) feed: Arc<Feed>,
    state: Mutex<State>,
    /// A watcher has connected.
    pub(super) watched: Notify,
    /// Locks that were acquired here since the last poll. Their client's record does not list them
    /// yet.
    fresh: Mutex<BTreeSet<String>>,
    /// Whether lease ids are shown: they allow releasing a lock.
    shows_ids: bool,
    log: Log,
}

#[derive(Debug, Default)]
struct State {
    known: Known,
    histories: Histories,
    /// Why the store does not respond, while it does not. Nothing is known before the first poll.
    away: Option<String>,
    has_looked: bool,
    /// All locks as of the last poll, serialized once for all readers until the next poll.
    snapshot: Option<LocksText>,
}

#[derive(Serialize)]
struct Changed {
    at: String,
    lock: LockReport,
}

#[derive(Serialize)]
struct Gone<'a> {
    at: String,
    name: &'a str,
}

#[derive(Serialize)]
struct Away<'a> {
    at: String,
    detail: &'a str,
}

#[derive(Serialize)]
struct Back {
    at: String,
}

impl Board {
    pub(crate) fn new(shows_ids: bool, log: Log) -> Arc<Self> {
        Arc::new(Self {
            feed: Feed::new(),
            state: Mutex::default(),
            watched: Notify::new(),
            fresh: Mutex::default(),
            shows_ids,
            log,
        })
    }

    /// The locks with this prefix: their current state, then the changes.
    pub(crate) fn source(self: &Arc<Self>, prefix: &str) -> Source {
        self.watched.notify_one();
        let (board, prefix) = (Arc::clone(self), prefix.to_owned());
        let wanted = prefix.clone();
        Source {
            snapshot: Box::new(move || Some(board.snapshot(&prefix))),
            // Messages without a lock are about the store.
            wanted: Box::new(move |name| name.is_empty() || name.starts_with(&wanted)),
            feed: Arc::clone(&self.feed),
        }
    }

    /// A lock was acquired here: watchers see it at the next poll, before its client's record lists
    /// it. If there are very many, only some are checked.
    pub(crate) fn expect(&self, name: &str) {
        // Locks in the first poll count as held before.
        if self.feed.readers() > 0 && self.state().has_looked {
            let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
            if fresh.len() < FRESH_MAX {
                fresh.insert(name.to_owned());
            }
        }
    }

    /// The report as it may be shown over HTTP.
    pub(crate) fn shown(&self, mut lock: LockReport) -> LockReport {
        if !self.shows_ids {
            lock.lease_id = None;
            terraform_info::hide_id(&mut lock.meta);
        }
        lock
    }

    /// The report of a single read, completed with the client records of the last poll.
    pub(crate) fn completed(&self, mut lock: LockReport) -> LockReport {
        let state = self.state();
        if let Some(seen) = state.known.locks().get(&lock.name) {
            lock.complete_by(seen);
        }
        lock
    }

    /// How many locks are held and how many callers wait, if the store responds.
    pub(crate) fn seen(&self) -> Option<Seen> {
        let state = self.state();
        let locks = state.known.locks().values();
        let waiting = locks.clone().map(|lock| lock.waiting);
        let waiting = waiting.fold(0, u64::saturating_add);
        let held = locks.filter(|lock| lock.held).count();
        let is_up = state.has_looked && state.away.is_none();
        is_up.then(|| Seen {
            held: i64::try_from(held).unwrap_or(i64::MAX),
            waiting: i64::try_from(waiting).unwrap_or(i64::MAX),
            is_up,
        })
    }

    /// How long a lease lasts, if a poll saw it.
    pub(crate) fn left_of(&self, name: &str, lease_id: &str) -> Option<Duration> {
        let state = self.state();
        let lock = state.known.locks().get(name)?;
        let is_it = lock.lease_id.as_deref() == Some(lease_id);
        let ends = lock.ends.filter(|_| is_it)?;
        Some(ends.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// The holders and events of a lock, as far as polls saw them.
    pub(crate) fn history(&self, name: &str) -> (Vec<Hold>, Vec<Change>) {
        let (mut holds, events) = self.state().histories.of(name);
        if !self.shows_ids {
            for hold in &mut holds {
                hold.lease_id = None;
            }
        }
        (
            holds,
            events.into_iter().map(|it| self.shown_change(it)).collect(),
        )
    }

    /// The last events of all locks.
    pub(crate) fn recent(&self) -> Vec<Change> {
        let recent = self.state().histories.recent();
        recent.into_iter().map(|it| self.shown_change(it)).collect()
    }

    /// Records an event and sends it to watchers.
    pub(crate) fn note(&self, change: Change) {
        self.state().histories.note(&change);
        if change.event != Event::Held {
            let name = change.name.clone();
            self.feed
                .publish("lock.event", &name, &self.shown_change(change));
        }
    }

    /// The locks with this prefix: a part of the text that all readers share.
    fn snapshot(&self, prefix: &str) -> Outgoing {
        let mut state = self.state();
        let State {
            known,
            away,
            snapshot,
            ..
        } = &mut *state;
        let text = snapshot.get_or_insert_with(|| {
            let now = SystemTime::now();
            let locks = known.locks().values().cloned();
            let locks = locks.map(|lock| self.shown(lock.at(now)));
            LocksText::written(&self.feed, moment(now), locks)
        });
        text.with_prefix(prefix, known.locks().keys(), away.as_deref())
    }

    fn shown_change(&self, mut change: Change) -> Change {
        if !self.shows_ids {
            change.lease_id = None;
        }
        change
    }

    /// Updates the locks and sends changes to watchers.
    pub(super) fn update(&self, reports: Vec<LockReport>) {
        let mut state = self.state();
        state.has_looked = true;
        state.snapshot = None;
        let was_away = state.away.take().is_some();
        let news = state.known.update(reports);
        let now = SystemTime::now();
        let at = || moment(now);
        let changed: Vec<LockReport> = news
            .changed
            .iter()
            .filter_map(|name| state.known.locks().get(name).cloned())
            .collect();
        drop(state);
        if was_away {
            self.log.line("tenure: Redis is back");
            self.feed.publish("store.back", "", &Back { at: at() });
        }
        for lock in changed {
            let (name, lock) = (lock.name.clone(), self.shown(lock));
            self.feed
                .publish("lock.changed", &name, &Changed { at: at(), lock });
        }
        for name in &news.gone {
            self.feed
                .publish("lock.gone", name, &Gone { at: at(), name });
        }
        for change in news.changes {
            self.note(change);
        }
    }

    pub(super) fn store_is_away(&self, detail: &str) {
        let mut state = self.state();
        let is_news = state.away.is_none();
        state.away = Some(detail.to_owned());
        state.snapshot = None;
        drop(state);
        if is_news {
            self.log
                .line(format_args!("tenure: Redis is not responding: {detail}"));
            let at = moment(SystemTime::now());
            self.feed.publish("store.away", "", &Away { at, detail });
        }
    }

    /// Locks that may be held although no client record lists them.
    pub(super) fn missing(&self, reports: &[LockReport]) -> Vec<String> {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        let missing = self.state().known.missing(reports);
        let listed: BTreeSet<&str> = reports.iter().map(|lock| lock.name.as_str()).collect();
        let fresh = fresh
            .into_iter()
            .filter(|name| !listed.contains(name.as_str()));
        let all: BTreeSet<String> = fresh.chain(missing).collect();
        all.into_iter().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
