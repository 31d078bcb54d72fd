//! Places in the queue that are kept between two long polls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tenure::{Guard, Lock, Unordered};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::metrics::Attempt;
use super::waiters::Caller;
use crate::limits::Permit;
use crate::problem::{Kind, Problem};

pub(crate) const TICKET_GONE: Kind =
    Kind::new(StatusCode::GONE, "ticket_gone", "the ticket has expired");

/// A place in the queue for a lock. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) name: String,
    pub(crate) since: Instant,
    pub(crate) attempt: Attempt,
    /// How long to wait, and from when on.
    wait: (Duration, Instant),
    /// The acquire runs in its own task, so that it continues without a request.
    acquiring: JoinHandle<Result<Guard, tenure::Error>>,
    _caller: Option<Caller>,
    _permit: Permit,
}

/// The places without a request, by ticket. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets(Arc<Mutex<HashMap<String, Waiting>>>);

impl Waiting {
    /// Joins the queue.
    pub(crate) fn join(
        lock: Lock<Unordered>,
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

    /// Sets a new time limit from now on.
    pub(crate) fn wait_for(&mut self, wait: Duration) {
        self.wait = (wait, Instant::now());
    }

    /// How much longer to wait.
    pub(crate) fn left(&self) -> Duration {
        let (wait, since) = self.wait;
        wait.saturating_sub(since.elapsed())
    }

    /// Waits for the lock. Cancel safe.
    pub(crate) async fn granted(&mut self) -> Result<Result<Guard, tenure::Error>, JoinError> {
        (&mut self.acquiring).await
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Leaves the queue, or releases the grant.
        self.acquiring.abort();
    }
}

impl Tickets {
    /// Parks the place for a time, or until the service stops, and returns its ticket.
    pub(crate) fn park(&self, waiting: Waiting, kept: Duration, stop: CancellationToken) -> String {
        let ticket = format!("{:032x}", rand::random::<u128>());
        self.parked().insert(ticket.clone(), waiting);
        let (tickets, parked) = (self.clone(), ticket.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(kept) => {}
                () = stop.cancelled() => {}
            }
            // Not while the tickets are locked: it may release a lock.
            let given_up = tickets.parked().remove(&parked);
            drop(given_up);
        });
        ticket
    }

    /// Takes the place of this ticket.
    pub(crate) fn claim(&self, ticket: &str, name: &str) -> Result<Waiting, Problem> {
        let mut parked = self.parked();
        let is_it = parked.get(ticket).is_some_and(|it| it.name == name);
        let waiting = is_it.then(|| parked.remove(ticket)).flatten();
        waiting.ok_or_else(|| {
            let detail = "unknown ticket: it expired, or another instance issued it; retry without \
                          a ticket";
            Problem::new(TICKET_GONE, detail)
        })
    }

    fn parked(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
