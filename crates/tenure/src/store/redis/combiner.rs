//! Lets the requests of concurrent callers travel together.
//!
//! A lone caller sends at once, so no request waits for company. In a crowd the requests wait for the
//! next write of the connection, and go with it: all acquires in one transaction, all releases in one
//! script. Nothing here is a task: a batch is sent by a caller's own thread, or by the one that drives
//! the connection.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, Weak};

use super::acquire_batch::AcquireBatch;
use super::connection::Connection;
use super::release_batch::ReleaseBatch;
use super::request_queue::{Entry, Waiting};
use super::value::Value;
use super::wire::{ReadBy, Reply, WireError};
use crate::seeded::{Bug, bug};

/// Requests of a kind per call: the server serves no other client meanwhile, for a fraction of a
/// millisecond.
const BATCH_MAX: usize = 64;
/// Calls in flight on one connection. While the server works on one, the next is on its way; more
/// would only make them smaller.
const CALLS_MAX: usize = 2;

/// Requests that are sent together.
struct Batch {
    acquires: AcquireBatch,
    releases: ReleaseBatch,
}

impl Connection {
    /// Adds a caller's request. It is sent at once, or with the next write of the connection.
    pub(super) fn combine(self: &Arc<Self>, entry: Entry) {
        // Weak: a connection that is no longer used must not be kept open by itself.
        let owner = Arc::downgrade(self);
        self.wire().on_write(move || {
            if let Some(connection) = owner.upgrade() {
                connection.send_waiting(connection.queue().waiting(), ReadBy::Driver);
            }
        });
        let mut waiting = self.queue().waiting();
        waiting.push(entry);
        if self.wire().sends_at_once() {
            self.send_waiting(waiting, ReadBy::Caller);
            self.wire().spin();
        } else if waiting.calls < CALLS_MAX {
            drop(waiting);
            self.wire().request_write();
        }
    }

    /// Sends what waits, as far as there is room for calls.
    fn send_waiting<'a>(
        self: &'a Arc<Self>,
        mut waiting: MutexGuard<'a, Waiting>,
        read_by: ReadBy,
    ) {
        while waiting.calls < CALLS_MAX
            && let Some(batch) = Batch::next(self, &mut waiting)
        {
            waiting.calls += 1;
            // Sent while the queue is locked: see `RequestQueue::settle`.
            let Err((batch, error)) = batch.send(self, read_by) else {
                continue;
            };
            drop(waiting);
            batch.finish(Some(self), Err(error));
            waiting = self.queue().waiting();
            waiting.calls -= 1;
        }
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
    /// The next batch, without requests whose callers have gone.
    fn next(connection: &Connection, waiting: &mut Waiting) -> Option<Self> {
        let acquires = take(&mut waiting.acquires, |entry| !entry.reply.is_closed());
        let releases = take(&mut waiting.releases, |entry| !entry.reply.is_closed());
        let is_empty = acquires.is_empty() && releases.is_empty();
        (!is_empty).then(|| Self {
            acquires: AcquireBatch::new(connection, acquires),
            releases: ReleaseBatch::new(connection, releases),
        })
    }

    /// Sends it. When the replies come, each caller gets its own, and what waits is sent next.
    fn send(self, connection: &Arc<Connection>, read_by: ReadBy) -> Result<(), (Self, WireError)> {
        let requests = self.acquires.len() + self.releases.len();
        let replies = self.acquires.replies() + self.releases.replies();
        // Weak: a connection that is no longer used must not be kept open by what it owes.
        let owner = Arc::downgrade(connection);
        connection.wire().send_batch(
            (requests, replies),
            (self, read_by),
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
        let mut waiting = connection.queue().waiting();
        waiting.calls -= 1;
        let is_empty = waiting.is_empty();
        drop(waiting);
        if !is_empty {
            connection.wire().request_write();
        }
    }
}
