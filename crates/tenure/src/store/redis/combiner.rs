//! Lets the requests of concurrent callers travel together.
//!
//! A lone caller sends at once, so no request waits for company. In a crowd the requests wait for the
//! next write of the connection, and go with it: all acquires in one transaction, all releases in one
//! script. Nothing here is a task: a batch is sent by a caller's own thread, or by the one that drives
//! the connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

use super::acquire_batch::{AcquireBatch, AcquireEntry};
use super::connection::Connection;
use super::release_batch::{ReleaseBatch, ReleaseEntry};
use super::value::Value;
use super::wire::{Reply, WireError};
use crate::seeded::{Bug, bug};

/// Requests of a kind per call: the server serves no other client meanwhile, for a fraction of a
/// millisecond.
const BATCH_MAX: usize = 64;
/// Calls in flight on one connection. While the server works on one, the next is on its way; more
/// would only make them smaller.
const CALLS_MAX: usize = 2;

/// The requests that wait for the next call on one connection.
#[derive(Default)]
pub(super) struct Combiner {
    // A std mutex, not an async one: no call waits while it is held.
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    calls: usize,
    acquires: VecDeque<AcquireEntry>,
    releases: VecDeque<ReleaseEntry>,
}

/// Requests that are sent together.
struct Batch {
    acquires: AcquireBatch,
    releases: ReleaseBatch,
}

/// A request that waits for the next call.
pub(super) enum Entry {
    Acquire(AcquireEntry),
    Release(ReleaseEntry),
}

/// The reply to one request of a batch.
pub(super) type EntryReply<T> = oneshot::Sender<Reply<T>>;

impl Combiner {
    /// Adds a request. It is sent at once, or with the next write of the connection.
    pub(super) fn add(&self, connection: &Arc<Connection>, entry: Entry) {
        let mut waiting = self.waiting();
        match entry {
            Entry::Acquire(entry) => waiting.acquires.push_back(entry),
            Entry::Release(entry) => waiting.releases.push_back(entry),
        }
        if connection.wire().sends_at_once() {
            self.send_waiting(connection, waiting);
        } else if waiting.calls < CALLS_MAX {
            drop(waiting);
            connection.wire().request_write();
        }
    }

    /// Sends what waits, as far as there is room for calls.
    pub(super) fn send(&self, connection: &Arc<Connection>) {
        self.send_waiting(connection, self.waiting());
    }

    /// Returns when no batch is between the queue and the connection: a request whose caller has gone
    /// is on its way by then, or will never be sent.
    pub(super) fn settle(&self) {
        drop(self.waiting());
    }

    fn send_waiting<'a>(
        &'a self,
        connection: &Arc<Connection>,
        mut waiting: MutexGuard<'a, Waiting>,
    ) {
        while waiting.calls < CALLS_MAX
            && let Some(batch) = waiting.next_batch(connection)
        {
            waiting.calls += 1;
            // Sent while the queue is locked: see `settle`.
            let Err((batch, error)) = batch.send(connection) else {
                continue;
            };
            drop(waiting);
            batch.finish(Some(connection), Err(error));
            waiting = self.waiting();
            waiting.calls -= 1;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The next batch, without requests whose callers have gone.
    fn next_batch(&mut self, connection: &Connection) -> Option<Batch> {
        let acquires = take(&mut self.acquires, |entry| !entry.reply.is_closed());
        let releases = take(&mut self.releases, |entry| !entry.reply.is_closed());
        let is_empty = acquires.is_empty() && releases.is_empty();
        (!is_empty).then(|| Batch {
            acquires: AcquireBatch::new(connection, acquires),
            releases: ReleaseBatch::new(connection, releases),
        })
    }
}

fn take<T>(waiting: &mut VecDeque<T>, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
    let mut taken = Vec::with_capacity(waiting.len().min(BATCH_MAX));
    while taken.len() < BATCH_MAX
        && let Some(entry) = waiting.pop_front()
    {
        if is_wanted(&entry) || bug(Bug::BatchSendsForNobody) {
            taken.push(entry);
        }
    }
    taken
}

impl Batch {
    /// Sends it. When the replies come, each caller gets its own, and what waits is sent next.
    fn send(self, connection: &Arc<Connection>) -> Result<(), (Self, WireError)> {
        let requests = self.acquires.len() + self.releases.len();
        let replies = self.acquires.replies() + self.releases.replies();
        // Weak: a connection that is no longer used must not be kept open by what it owes.
        let owner = Arc::downgrade(connection);
        connection.wire().send_batch(
            (requests, replies),
            self,
            |batch, out| {
                batch.acquires.encode(out);
                batch.releases.encode(out);
            },
            move |batch, replies| finish(&owner, batch, replies),
        )
    }

    fn finish(self, connection: Option<&Connection>, replies: Reply<Vec<Value>>) {
        match (connection, replies) {
            (Some(connection), Ok(mut replies)) => {
                let of_releases = replies.split_off(self.acquires.replies().min(replies.len()));
                self.acquires.finish(connection, replies);
                self.releases.finish(connection, of_releases);
            }
            (_, Err(error)) => {
                self.acquires.fail(&error);
                self.releases.fail(&error);
            }
            (None, Ok(_)) => {
                self.acquires.fail(&WireError::Closed);
                self.releases.fail(&WireError::Closed);
            }
        }
    }
}

fn finish(owner: &Weak<Connection>, batch: Batch, replies: Reply<Vec<Value>>) {
    let connection = owner.upgrade();
    batch.finish(connection.as_deref(), replies);
    if let Some(connection) = connection {
        let mut waiting = connection.combiner().waiting();
        waiting.calls -= 1;
        let is_empty = waiting.acquires.is_empty() && waiting.releases.is_empty();
        drop(waiting);
        if !is_empty {
            connection.wire().request_write();
        }
    }
}
