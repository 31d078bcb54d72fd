//! Places in the queue that are kept while nobody waits: between a long poll and the next.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tenure::{Guard, Lock};
use tokio::task::{JoinError, JoinHandle};

use super::metrics::Attempt;
use super::waiters::Caller;
use crate::app::AppState;
use crate::limits::Permit;
use crate::problem::{Kind, Problem};

pub(crate) const TICKET_GONE: Kind = Kind::new(
    StatusCode::GONE,
    "ticket_gone",
    "the place in the queue was given up",
);

/// A place in the queue for a lock. Dropped, it is given up.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) name: String,
    pub(crate) since: Instant,
    pub(crate) attempt: Attempt,
    /// How long to wait, and since when that counts.
    wait: (Duration, Instant),
    /// It runs by itself, so that it can be left alone.
    acquiring: JoinHandle<Result<Guard, tenure::Error>>,
    _caller: Option<Caller>,
    _permit: Permit,
}

/// The places that nobody waits at, by ticket.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    parked: Mutex<HashMap<String, Waiting>>,
}

impl Waiting {
    /// Joins the queue.
    pub(crate) fn join(
        lock: Lock,
        wait: Duration,
        attempt: Attempt,
        caller: Option<Caller>,
        permit: Permit,
    ) -> Self {
        let now = Instant::now();
        Self {
            name: lock.name().to_owned(),
            since: now,
            attempt,
            wait: (wait, now),
            acquiring: tokio::spawn(async move { lock.acquire().await }),
            _caller: caller,
            _permit: permit,
        }
    }

    /// Waits for so long from now on, whatever was asked for before.
    pub(crate) fn wait_for(&mut self, wait: Duration) {
        self.wait = (wait, Instant::now());
    }

    /// How much longer to wait.
    pub(crate) fn left(&self) -> Duration {
        let (wait, since) = self.wait;
        wait.saturating_sub(since.elapsed())
    }

    /// Waits for the lock. Can be dropped and asked again.
    pub(crate) async fn granted(&mut self) -> Result<Result<Guard, tenure::Error>, JoinError> {
        (&mut self.acquiring).await
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Gives up the place, or the grant.
        self.acquiring.abort();
    }
}

impl Tickets {
    /// Leaves the place alone for a while, and tells the ticket for it.
    pub(crate) fn park(app: &AppState, waiting: Waiting) -> String {
        let ticket = format!("{:032x}", rand::random::<u128>());
        app.desk.tickets.parked().insert(ticket.clone(), waiting);
        let (app, parked) = (app.clone(), ticket.clone());
        tokio::spawn(async move {
            let kept = app.settings.limits.keep_place;
            tokio::select! {
                () = tokio::time::sleep(kept) => {}
                () = app.stop.cancelled() => {}
            }
            // Not while the tickets are locked: it may give a lock back.
            let given_up = app.desk.tickets.parked().remove(&parked);
            drop(given_up);
        });
        ticket
    }

    /// The place with this ticket, for whoever comes back.
    pub(crate) fn claim(&self, ticket: &str, name: &str) -> Result<Waiting, Problem> {
        let mut parked = self.parked();
        let is_it = parked.get(ticket).is_some_and(|it| it.name == name);
        let waiting = is_it.then(|| parked.remove(ticket)).flatten();
        waiting.ok_or_else(|| {
            let detail = "no place in the queue has this ticket: it was given up because nobody came \
                          back in time, or another instance gave it; ask again without a ticket";
            Problem::new(TICKET_GONE, detail)
        })
    }

    fn parked(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
