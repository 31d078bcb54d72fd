//! Releases several leases, or votes for them, on one node of a Redlock in one call.

use super::command::{append_bulk, append_bulk_number, append_bulk_of};
use super::connection::Connection;
use super::keys::Keys;
use super::operation::{Operation, ReleaseVote, ScriptReply, ServerContext};
use super::request_queue::Entry;
use super::server_error;
use super::value::Value;
use super::vote_batch::{ScriptEncoder, begin_script, is_unknown_script, no_reply};
use super::vote_request::{Delivery, NodeReleaseReply, VoteReleaseEntry, WAITERS};
use super::wire::WireError;
use crate::layout::Layout;
use crate::moment::Moment;
use crate::store::Failure;
use crate::timings::Call;

/// Releases that are sent together.
pub(super) struct VoteReleaseBatch {
    /// Those of one call.
    together: Vec<VoteReleaseEntry>,
    by_text: bool,
    alone: Vec<VoteReleaseEntry>,
    sent_at: Moment,
}

impl VoteReleaseEntry {
    /// Whether `release_all.lua` can release it.
    fn is_plain(&self) -> bool {
        let request = &self.request;
        let is_together = self.delivery == Delivery::Together && request.place().is_none();
        is_together && !request.lease().has_meta
    }

    fn operation(&self) -> ReleaseVote<'_> {
        ReleaseVote {
            lease: self.request.lease(),
            ballot: self.request.ballot(),
            notify: self.request.notifies(),
            place: self.request.place(),
        }
    }

    /// On its own.
    fn encode(&self, out: &mut Vec<u8>) {
        let call = self.operation().call(&ServerContext {
            keys: self.keys.clone(),
            sharded: false,
            shares_counter: false,
            latest_us: 0,
            primary: String::new(),
        });
        let command = match self.delivery {
            Delivery::AloneByText => call.by_text(),
            Delivery::Together | Delivery::Alone => call.by_hash(),
        };
        command.encode(out);
    }

    fn finish_alone(self, connection: &Connection, reply: Value, sent_at: Moment) {
        let Some(error) = reply.error() else {
            let reply = ScriptReply {
                layout: self.keys.layout,
                value: reply,
                sent_at,
            };
            let released = self.operation().read(&reply);
            let released = released.and_then(|it| it.map_err(|_| connection.too_late()));
            return self.finish(connection, released);
        };
        if is_unknown_script(error) && self.delivery != Delivery::AloneByText {
            return self.send_again(connection, Delivery::AloneByText);
        }
        let failure = refused(connection, error);
        self.finish(connection, Err(failure));
    }

    fn finish(self, connection: &Connection, released: Result<NodeReleaseReply, Failure>) {
        connection.note_call(self.started_at, || Call::Release, &released);
        self.request.released(self.node, released);
    }

    fn send_again(mut self, connection: &Connection, delivery: Delivery) {
        self.delivery = delivery;
        connection.response_watch().expect(connection.clock().now());
        // The combiner sends what waits when it is done with these replies.
        connection.queue().waiting().push(Entry::VoteRelease(self));
    }
}

impl VoteReleaseBatch {
    pub(super) fn new(connection: &Connection, entries: Vec<VoteReleaseEntry>) -> Self {
        let script = &connection.queue().vote_scripts.release_all;
        let allowed = script.is_allowed();
        let (mut together, mut alone): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .partition(|entry| allowed && entry.is_plain());
        if together.len() == 1 {
            alone.append(&mut together);
        }
        Self {
            by_text: together.len() > 1 && script.take_unknown(),
            together,
            alone,
            sent_at: connection.clock().now(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.together.len() + self.alone.len()
    }

    /// How many replies it gets.
    pub(super) fn replies(&self) -> usize {
        usize::from(!self.together.is_empty()) + self.alone.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(first) = self.together.first() {
            let script = &first.keys.layout.redlock_scripts().release_all;
            let call = begin_script(out, script, self.by_text);
            encode_all(&self.together, &first.keys, call);
        }
        for entry in &self.alone {
            entry.encode(out);
        }
    }

    pub(super) fn finish(self, connection: &Connection, replies: Vec<Value>) {
        if self.len() == 0 {
            return;
        }
        let now = connection.clock().now();
        connection.response_watch().settled(self.len(), Some(now));
        let mut replies = replies.into_iter();
        if !self.together.is_empty() {
            let reply = replies.next().unwrap_or(Value::Nil);
            finish_together(connection, self.together, reply);
        }
        for entry in self.alone {
            let reply = replies.next().unwrap_or(Value::Nil);
            entry.finish_alone(connection, reply, self.sent_at);
        }
    }

    pub(super) fn fail(self, connection: Option<&Connection>, error: &WireError) {
        if let Some(connection) = connection {
            connection.response_watch().settled(self.len(), None);
        }
        let id = connection.map(|connection| connection.id);
        for entry in self.together.into_iter().chain(self.alone) {
            let in_flight = crate::store::InFlight {
                connection: id,
                latest_us: 0,
            };
            let failure = no_reply(connection, error, in_flight);
            match connection {
                Some(connection) => entry.finish(connection, Err(failure)),
                None => entry.request.released(entry.node, Err(failure)),
            }
        }
    }
}

/// Each release has its own reply. If the call was refused as a whole, each is sent alone.
fn finish_together(connection: &Connection, entries: Vec<VoteReleaseEntry>, reply: Value) {
    let replies = match reply {
        Value::Array(replies) => replies,
        Value::Error(error) => {
            let script = &connection.queue().vote_scripts.release_all;
            let retry = script.note_refusal(connection, &error);
            for entry in entries {
                if let Some(delivery) = entry.delivery.after(&error).filter(|_| retry) {
                    entry.send_again(connection, delivery);
                } else {
                    let failure = refused(connection, &error);
                    entry.finish(connection, Err(failure));
                }
            }
            return;
        }
        other => vec![other],
    };
    let mut replies = replies.into_iter();
    for entry in entries {
        let released = match replies.next() {
            // Clients wait for it: release.lua tells them.
            Some(Value::Int(2)) => {
                entry.send_again(connection, Delivery::Alone);
                continue;
            }
            Some(Value::Int(1)) => Ok(NodeReleaseReply::WasHeld),
            Some(Value::Int(_)) => Ok(NodeReleaseReply::NotHeld),
            Some(Value::Error(error)) => Err(refused(connection, &error)),
            other => {
                let value = other.unwrap_or(Value::Nil);
                Err(Failure::refused(value.unexpected("release_all.lua")))
            }
        };
        entry.finish(connection, released);
    }
}

/// A script that failed midway may have released.
fn refused(connection: &Connection, error: &str) -> Failure {
    Failure {
        in_flight: server_error::ran_partly(error).then(|| connection.in_flight(0)),
        ..connection.refusal(error)
    }
}

fn encode_all(entries: &[VoteReleaseEntry], keys: &Keys, call: ScriptEncoder<'_>) {
    let channels = match keys.layout {
        Layout::Native => 1,
        Layout::Redisson => 2,
    };
    let out = call.parts(3 * entries.len(), 1 + (2 + channels) * entries.len());
    for entry in entries {
        append_bulk_of(out, &keys.lock_parts(&entry.request.lease().name));
    }
    for entry in entries {
        append_bulk(out, keys.fence(&entry.request.lease().name).as_ref());
    }
    for entry in entries {
        let name = &entry.request.lease().name;
        append_bulk_of(out, &keys.neighbour_parts(name, WAITERS));
    }
    append_bulk_number(out, channels as u64);
    for entry in entries {
        let lease = entry.request.lease();
        append_bulk(out, lease.id.as_str().as_bytes());
        match entry.request.ballot() {
            Some(ballot) => append_bulk_number(out, ballot.last()),
            None => append_bulk(out, b""),
        }
        if entry.request.notifies() {
            for (channel, _) in keys.channels(&lease.name) {
                append_bulk(out, channel.as_bytes());
            }
        } else {
            (0..channels).for_each(|_| append_bulk(out, b""));
        }
    }
}
