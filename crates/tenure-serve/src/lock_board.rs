//! The board: all locks as they were seen last, by whomever they are held, and what happened to them.

mod history;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use tenure::{ErrorKind, Listing};
use tenure_view::changes::{Change, Event, Known, look_again};
use tenure_view::holders::LockReport;
use tenure_view::time::moment;
use tokio::sync::Notify;

use self::history::Histories;
pub(crate) use self::history::Hold;
use crate::app::AppState;
use crate::event_stream::{Feed, Message, Source};
use crate::locks::{Seen, hide_id};
use crate::log::Log;

/// How often to look while somebody watches, and while nobody does.
const WATCHED_PACE: Duration = Duration::from_millis(250);
const IDLE_PACE: Duration = Duration::from_secs(2);
/// How much longer than a look the pause after it is at least: looking must not become the store's
/// main work where there are very many locks.
const PAUSE_FACTOR: u32 = 4;
/// How long a look may take before the store counts as away.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// How many locks that were just taken are looked at each time.
const FRESH_MAX: usize = 50;

/// All locks as they were seen last.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) feed: Arc<Feed>,
    state: Mutex<State>,
    /// Somebody has come to watch.
    watched: Notify,
    /// Locks that were taken here since the last look. Their client does not speak of them yet.
    fresh: Mutex<BTreeSet<String>>,
    /// Whether ids of leases are shown: whoever knows one can end the lease.
    shows_ids: bool,
    log: Log,
}

#[derive(Debug, Default)]
struct State {
    known: Known,
    histories: Histories,
    /// Why the store does not answer, as long as it does not. Nothing is known before the first look.
    away: Option<String>,
    has_looked: bool,
    /// All locks as they were at the last look, written once for all who come before the next.
    snapshot: Option<Message>,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    at: String,
    locks: Vec<LockReport>,
    away: Option<&'a str>,
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

    /// The locks whose names begin so: how they are, and then what changes.
    pub(crate) fn source(self: &Arc<Self>, prefix: &str) -> Source {
        self.watched.notify_one();
        let (board, prefix) = (Arc::clone(self), prefix.to_owned());
        let wanted = prefix.clone();
        Source {
            snapshot: Box::new(move || vec![board.snapshot(&prefix)]),
            // What is about no lock is about the store.
            wanted: Box::new(move |name| name.is_empty() || name.starts_with(&wanted)),
            feed: Arc::clone(&self.feed),
        }
    }

    /// A lock was taken here: whoever watches sees it at the next look, and not only when its client
    /// speaks of it. Of very many, not all are looked at.
    pub(crate) fn expect(&self, name: &str) {
        // What is seen at the first look counts as held before.
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
            hide_id(&mut lock.meta);
        }
        lock
    }

    /// The report of a single look, with what clients said of the lock when all were looked at last.
    pub(crate) fn completed(&self, mut lock: LockReport) -> LockReport {
        let state = self.state();
        if let Some(seen) = state.known.locks().get(&lock.name) {
            lock.complete_by(seen);
        }
        lock
    }

    /// How many locks are held and how many callers wait, if the store answers.
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

    /// How long a lease lasts, if it was seen at its lock.
    pub(crate) fn left_of(&self, name: &str, lease_id: &str) -> Option<Duration> {
        let state = self.state();
        let lock = state.known.locks().get(name)?;
        let is_it = lock.lease_id.as_deref() == Some(lease_id);
        let ends = lock.ends.filter(|_| is_it)?;
        Some(ends.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// Who held a lock, and what happened to it, as far as it was seen.
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

    /// Takes note of something that happened, and tells it.
    pub(crate) fn note(&self, change: Change) {
        self.state().histories.note(&change);
        if change.event != Event::Held {
            let name = change.name.clone();
            self.feed
                .tell("lock.event", &name, &self.shown_change(change));
        }
    }

    fn snapshot(&self, prefix: &str) -> Message {
        let (mut state, now) = (self.state(), SystemTime::now());
        if let Some(known) = state.snapshot.as_ref().filter(|_| prefix.is_empty()) {
            return known.clone();
        }
        let wanted = state.known.locks().values();
        let wanted = wanted.filter(|lock| lock.name.starts_with(prefix));
        let snapshot = Snapshot {
            at: moment(now),
            locks: wanted
                .map(|lock| self.shown(lock.clone().at(now)))
                .collect(),
            away: state.away.as_deref(),
        };
        let message = Message::now("locks.snapshot", "", &snapshot);
        if prefix.is_empty() {
            state.snapshot = Some(message.clone());
        }
        message
    }

    fn shown_change(&self, mut change: Change) -> Change {
        if !self.shows_ids {
            change.lease_id = None;
        }
        change
    }

    /// Takes note of how the locks are, and tells what is new about that.
    fn update(&self, reports: Vec<LockReport>) {
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
            self.log.line("tenure: the store of the locks is back");
            self.feed.tell("store.back", "", &Back { at: at() });
        }
        for lock in changed {
            let (name, lock) = (lock.name.clone(), self.shown(lock));
            self.feed
                .tell("lock.changed", &name, &Changed { at: at(), lock });
        }
        for name in &news.gone {
            self.feed.tell("lock.gone", name, &Gone { at: at(), name });
        }
        for change in news.changes {
            self.note(change);
        }
    }

    fn store_is_away(&self, detail: &str) {
        let mut state = self.state();
        let is_news = state.away.is_none();
        state.away = Some(detail.to_owned());
        state.snapshot = None;
        drop(state);
        if is_news {
            self.log.line(format_args!(
                "tenure: the store of the locks is away: {detail}"
            ));
            let at = moment(SystemTime::now());
            self.feed.tell("store.away", "", &Away { at, detail });
        }
    }

    /// What may be held although no client speaks of it.
    fn missing(&self, reports: &[LockReport]) -> Vec<String> {
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

/// Looks at all locks again and again, until the service stops.
pub(crate) async fn run(app: AppState) {
    loop {
        let begun = Instant::now();
        let looked = tokio::select! {
            looked = tokio::time::timeout(LOOK_WITHIN, app.locks.list(|_| true)) => looked,
            () = app.stop.cancelled() => return,
        };
        match looked {
            Ok(Ok(listing)) => take_in(&app, &listing).await,
            Ok(Err(error)) if error.kind() == ErrorKind::Closed => return,
            Ok(Err(error)) => app.board.store_is_away(&error.to_string()),
            Err(_) => {
                let detail = format!("the store did not answer within {LOOK_WITHIN:?}");
                app.board.store_is_away(&detail);
            }
        }
        let least = begun.elapsed() * PAUSE_FACTOR;
        let is_watched = app.board.feed.readers() > 0;
        let pace = if is_watched { WATCHED_PACE } else { IDLE_PACE };
        tokio::select! {
            () = tokio::time::sleep(pace.max(least.min(LOOK_WITHIN))) => {}
            () = app.board.watched.notified(), if !is_watched => {}
            () = app.stop.cancelled() => return,
        }
    }
}

async fn take_in(app: &AppState, listing: &Listing) {
    let mut reports: Vec<_> = listing.locks.iter().map(LockReport::of_listed).collect();
    let missing = app.board.missing(&reports);
    let again = look_again(&app.locks, missing, &reports).await;
    reports.extend(again);
    let here = app.locks.id();
    let named = |lock| app.desk.callers.named(&here, lock);
    app.board.update(reports.into_iter().map(named).collect());
}
