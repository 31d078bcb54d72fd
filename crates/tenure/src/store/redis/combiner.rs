//! Lets the requests of concurrent callers travel together.
//!
//! A lone caller sends at once, so no request waits for company. In a crowd the requests wait for the
//! next write of the connection, and go with it: all acquires in one transaction, all releases in one
//! script; in a cluster one of each for a slot. Nothing here is a task: a batch is sent by a caller's own thread, or by the one that drives
//! the connection.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, Weak};

use super::acquire_batch::AcquireBatch;
use super::connection::Connection;
use super::node_batch::NodeBatch;
use super::release_batch::ReleaseBatch;
use super::request_queue::{Entry, Waiting};
use super::slot_batches::SlotBatches;
use super::value::Value;
use super::vote_request::{VoteEntry, VoteReleaseEntry};
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
    acquires: SlotBatches<AcquireBatch>,
    releases: SlotBatches<ReleaseBatch>,
    /// Those to a node of a Redlock, if there are any. In a box, because most have none.
    of_node: Option<Box<NodeBatches>>,
}

/// Requests to one node of a Redlock that are sent together.
struct NodeBatches {
    /// Before the votes: a lock that was just released can be voted for.
    releases: NodeBatch<VoteReleaseEntry>,
    votes: NodeBatch<VoteEntry>,
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
        let read_by = entry.read_by();
        let mut waiting = self.queue().waiting();
        waiting.push(entry);
        if self.wire().sends_at_once() {
            self.send_waiting(waiting, read_by);
            if read_by == ReadBy::Caller {
                self.wire().read_on_caller();
            }
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
            let Err(unsent) = batch.send(self, read_by) else {
                continue;
            };
            drop(waiting);
            let (batch, error) = *unsent;
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
        let of_node = NodeBatches::next(connection, waiting);
        let is_empty = acquires.is_empty() && releases.is_empty() && of_node.is_none();
        (!is_empty).then(|| Self {
            acquires: SlotBatches::new(connection, acquires),
            releases: SlotBatches::new(connection, releases),
            of_node: of_node.map(Box::new),
        })
    }

    /// Sends it. When the replies come, each caller gets its own, and what waits is sent next.
    fn send(
        self,
        connection: &Arc<Connection>,
        read_by: ReadBy,
    ) -> Result<(), Box<(Self, WireError)>> {
        let of_node = self.of_node.as_deref();
        let (requests, replies) = of_node.map_or((0, 0), NodeBatches::size);
        let requests = requests + self.acquires.len() + self.releases.len();
        let replies = replies + self.acquires.replies() + self.releases.replies();
        // Weak: a connection that is no longer used must not be kept open by what it owes.
        let owner = Arc::downgrade(connection);
        connection.wire().send_batch(
            (requests, replies),
            (self, read_by),
            |batch, out| {
                batch.acquires.encode(out);
                batch.releases.encode(out);
                if let Some(of_node) = &batch.of_node {
                    of_node.releases.encode(out);
                    of_node.votes.encode(out);
                }
            },
            move |batch, replies| finish(&owner, batch, replies),
        )
    }

    fn finish(self, connection: Option<&Connection>, replies: Reply<Vec<Value>>) {
        match (connection, replies) {
            (Some(connection), Ok(mut replies)) => {
                let mut rest = split_off(&mut replies, self.acquires.replies());
                self.acquires.finish(connection, replies);
                let of_node = split_off(&mut rest, self.releases.replies());
                self.releases.finish(connection, rest);
                if let Some(batch) = self.of_node {
                    batch.finish(connection, of_node);
                }
            }
            (connection, Err(error)) => self.fail(connection, &error),
            (None, Ok(_)) => self.fail(None, &WireError::Closed),
        }
    }

    fn fail(self, connection: Option<&Connection>, error: &WireError) {
        self.acquires.fail(error);
        self.releases.fail(error);
        if let Some(of_node) = self.of_node {
            of_node.releases.fail(connection, error);
            of_node.votes.fail(connection, error);
        }
    }
}

impl NodeBatches {
    fn next(connection: &Connection, waiting: &mut Waiting) -> Option<Self> {
        if waiting.votes.is_empty() && waiting.vote_releases.is_empty() {
            return None;
        }
        let releases = take(&mut waiting.vote_releases, |_| true);
        let votes = NodeBatch::take(connection, &mut waiting.votes, BATCH_MAX);
        let is_empty = releases.is_empty() && votes.len() == 0;
        (!is_empty).then(|| Self {
            releases: NodeBatch::of(connection, releases),
            votes,
        })
    }

    /// How many requests it has, and how many replies it gets.
    fn size(&self) -> (usize, usize) {
        let requests = self.releases.len() + self.votes.len();
        (requests, self.releases.replies() + self.votes.replies())
    }

    fn finish(self, connection: &Connection, mut replies: Vec<Value>) {
        let of_votes = split_off(&mut replies, self.releases.replies());
        self.releases.finish(connection, replies);
        self.votes.finish(connection, of_votes);
    }
}

/// What comes after the first replies.
fn split_off(replies: &mut Vec<Value>, count: usize) -> Vec<Value> {
    replies.split_off(count.min(replies.len()))
}

fn finish(owner: &Weak<Connection>, batch: Batch, replies: Reply<Vec<Value>>) {
    let connection = owner.upgrade();
    batch.finish(connection.as_deref(), replies);
    if let Some(connection) = connection {
        let mut waiting = connection.queue().waiting();
        waiting.calls -= 1;
        if waiting.is_empty() {
            return;
        }
        if connection.wire().is_closed() {
            // Nothing else would fail what was refused and waits to be sent again.
            connection.send_waiting(waiting, ReadBy::Driver);
        } else {
            drop(waiting);
            connection.wire().request_write();
        }
    }
}
