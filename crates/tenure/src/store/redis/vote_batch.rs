//! Requests the votes of one node of a Redlock for several leases in one call.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::command::{append_bulk, append_bulk_number, append_bulk_of, append_header};
use super::connection::Connection;
use super::node_state::VOTE_DELAY_MIN;
use super::operation::{Operation, Rejection, RequestVote, ScriptReply, ServerContext};
use super::request_queue::Entry;
use super::script::Script;
use super::server_error;
use super::value::Value;
use super::vote_request::{BatchScript, Delivery, Vote, VoteEntry};
use super::wire::WireError;
use crate::error::ErrorKind;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, InFlight, LeaseSpec};
use crate::timings::Call;

/// How many bytes of names and ids go in one call.
const BYTES_MAX: usize = 32 * 1024;

/// Requests for votes that are sent together.
pub(super) struct VoteBatch {
    /// Those of one call.
    together: Vec<VoteEntry>,
    by_text: bool,
    alone: Vec<VoteEntry>,
    sent_at: Moment,
}

impl Delivery {
    /// How to send again what was refused; `None` if that does not help.
    pub(super) fn after(self, error: &str) -> Option<Self> {
        match self {
            Self::Together => Some(Self::Alone),
            Self::Alone if is_unknown_script(error) => Some(Self::AloneByText),
            Self::Alone | Self::AloneByText => None,
        }
    }
}

impl BatchScript {
    /// Whether requests may be sent by this script.
    pub(super) fn is_allowed(&self) -> bool {
        !self.denied.load(Ordering::Relaxed)
    }

    /// Whether the next call has to carry the text.
    pub(super) fn take_unknown(&self) -> bool {
        self.unknown.load(Ordering::Relaxed) && self.unknown.swap(false, Ordering::Relaxed)
    }

    /// Notes why a call was refused. True if the requests are worth sending one by one.
    pub(super) fn note_refusal(&self, connection: &Connection, error: &str) -> bool {
        if is_unknown_script(error) {
            self.unknown.store(true, Ordering::Relaxed);
            return true;
        }
        let failure = connection.refusal(error);
        if failure.error.kind() == ErrorKind::Denied {
            self.denied.store(true, Ordering::Relaxed);
        }
        !failure.transient
    }
}

impl VoteEntry {
    /// Whether `vote_all.lua` can vote for it.
    fn is_plain(&self) -> bool {
        let held = self.held();
        let waits = self.request.attempt().queue;
        let is_together = self.delivery == Delivery::Together && !waits;
        is_together && !held.has_meta && held.ttl <= VOTE_DELAY_MIN
    }

    fn held(&self) -> &LeaseSpec {
        &self.request.attempt().held
    }

    fn bytes(&self) -> usize {
        let held = self.held();
        2 * held.name.as_str().len() + held.id.as_str().len()
    }

    fn operation(&self) -> RequestVote<'_> {
        RequestVote {
            attempt: self.request.attempt(),
            ballot: self.request.ballot(),
            bounds: self.bounds,
        }
    }

    /// On its own.
    fn encode(&self, out: &mut Vec<u8>) {
        let call = self.operation().call(&ServerContext {
            keys: self.keys.clone(),
            sharded: false,
            shares_counter: false,
            latest_us: self.in_flight.latest_us,
            primary: String::new(),
        });
        let command = match self.delivery {
            Delivery::AloneByText => call.by_text(),
            Delivery::Together | Delivery::Alone => call.by_hash(),
        };
        command.encode(out);
    }

    fn read(
        &self,
        connection: &Connection,
        value: Value,
        sent_at: Moment,
    ) -> Result<Vote, Failure> {
        if let Some(error) = value.error() {
            return Err(self.refused(connection, error));
        }
        let reply = ScriptReply {
            layout: self.keys.layout,
            value,
            sent_at,
        };
        match self.operation().read(&reply)? {
            Ok(vote) => {
                if let Vote::Far(server_us) = vote {
                    // We assumed a clock ahead of its real one, or it was set back.
                    connection.set_clock(sent_at, server_us);
                }
                Ok(vote)
            }
            Err(Rejection::Late(server_us)) => {
                // The server's clock was set forward since we read it.
                connection.set_clock(sent_at, server_us);
                Err(connection.too_late())
            }
            Err(Rejection::OtherPrimary) => Err(connection.too_late()),
        }
    }

    /// A script that failed midway may have voted.
    fn refused(&self, connection: &Connection, error: &str) -> Failure {
        Failure {
            in_flight: server_error::ran_partly(error).then_some(self.in_flight),
            ..connection.refusal(error)
        }
    }

    /// Gives the reply to whoever asked.
    fn finish(self, connection: &Connection, vote: Result<Vote, Failure>) {
        connection.note_call(self.started_at, || Call::Vote, &vote);
        self.request.voted(self.node, vote);
    }

    /// Sends it once more, unless it is no longer wanted: then a release may be on its way already.
    fn send_again(mut self, connection: &Connection, delivery: Delivery) {
        self.delivery = delivery;
        connection.response_watch().expect(connection.clock().now());
        // The combiner sends what waits when it is done with these replies.
        connection.queue().waiting().push(Entry::Vote(self));
    }
}

impl VoteBatch {
    /// Takes as many requests as fit into a call, without those that are no longer wanted.
    pub(super) fn take(
        connection: &Connection,
        waiting: &mut VecDeque<VoteEntry>,
        most: usize,
    ) -> Self {
        let allowed = connection.queue().vote_scripts.vote_all.is_allowed();
        let mut batch = Self {
            together: Vec::with_capacity(waiting.len().min(most)),
            by_text: false,
            alone: Vec::new(),
            sent_at: connection.clock().now(),
        };
        let (mut bytes, mut unwanted) = (0, 0);
        while batch.len() < most
            && bytes < BYTES_MAX
            && let Some(entry) = waiting.pop_front()
        {
            if !entry.request.is_wanted() && !bug(Bug::RedlockBatchVotesForNobody) {
                unwanted += 1;
                continue;
            }
            bytes += entry.bytes();
            let first = batch.together.first();
            let fits = first.is_none_or(|first| first.bounds == entry.bounds);
            if allowed && fits && entry.is_plain() {
                batch.together.push(entry);
            } else {
                batch.alone.push(entry);
            }
        }
        if batch.together.len() == 1 {
            batch.alone.append(&mut batch.together);
        }
        if batch.together.len() > 1 {
            batch.by_text = connection.queue().vote_scripts.vote_all.take_unknown();
        }
        if unwanted > 0 {
            connection.response_watch().settled(unwanted, None);
        }
        batch
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
            let script = &first.keys.layout.redlock_scripts().vote_all;
            encode_all(
                &self.together,
                first,
                begin_script(out, script, self.by_text),
            );
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
            finish_together(connection, self.together, reply, self.sent_at);
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
        for entry in self.together.into_iter().chain(self.alone) {
            let failure = no_reply(connection, error, entry.in_flight);
            match connection {
                Some(connection) => entry.finish(connection, Err(failure)),
                None => entry.request.voted(entry.node, Err(failure)),
            }
        }
    }
}

impl VoteEntry {
    fn finish_alone(self, connection: &Connection, reply: Value, sent_at: Moment) {
        let again = match &reply {
            Value::Error(error) => self.delivery_after(error),
            _ => None,
        };
        if let Some(delivery) = again {
            self.send_again(connection, delivery);
        } else {
            let vote = self.read(connection, reply, sent_at);
            self.finish(connection, vote);
        }
    }

    fn delivery_after(&self, error: &str) -> Option<Delivery> {
        let unknown = is_unknown_script(error);
        match self.delivery {
            // One that was the only one was sent alone.
            Delivery::Together | Delivery::Alone if unknown => Some(Delivery::AloneByText),
            _ => None,
        }
    }
}

/// Each vote has its own reply. If the call was refused as a whole, each is requested alone.
fn finish_together(
    connection: &Connection,
    entries: Vec<VoteEntry>,
    reply: Value,
    sent_at: Moment,
) {
    let mut replies = match reply {
        Value::Array(replies) => replies,
        Value::Error(error) => {
            let script = &connection.queue().vote_scripts.vote_all;
            let retry = script.note_refusal(connection, &error);
            for entry in entries {
                if let Some(delivery) = entry.delivery.after(&error).filter(|_| retry) {
                    entry.send_again(connection, delivery);
                } else {
                    let failure = entry.refused(connection, &error);
                    entry.finish(connection, Err(failure));
                }
            }
            return;
        }
        other => vec![other],
    };
    if bug(Bug::RedlockBatchMixesVotes) {
        replies.rotate_left(1);
    }
    let mut replies = replies.into_iter();
    for entry in entries {
        let reply = replies.next().unwrap_or(Value::Nil);
        let vote = entry.read(connection, reply, sent_at);
        entry.finish(connection, vote);
    }
}

/// The failure of a request whose connection has ended.
pub(super) fn no_reply(
    connection: Option<&Connection>,
    error: &WireError,
    in_flight: InFlight,
) -> Failure {
    let in_flight = Some(in_flight);
    let Some(connection) = connection else {
        return server_error::from_wire(&"a node", error, in_flight);
    };
    if matches!(error, WireError::Closed) {
        return server_error::no_reply(connection.target(), in_flight);
    }
    connection.close();
    server_error::from_wire(connection.target(), error, in_flight)
}

/// Begins a call of a script; the number of keys follows.
pub(super) fn begin_script<'a>(
    out: &'a mut Vec<u8>,
    script: &'a Script,
    by_text: bool,
) -> ScriptEncoder<'a> {
    let (word, script) = if by_text {
        ("EVAL", script.code())
    } else {
        ("EVALSHA", script.hash())
    };
    ScriptEncoder { out, word, script }
}

/// A call of a script that is being written.
pub(super) struct ScriptEncoder<'a> {
    out: &'a mut Vec<u8>,
    word: &'static str,
    script: &'a str,
}

impl<'a> ScriptEncoder<'a> {
    /// Writes what comes before the keys and arguments.
    pub(super) fn parts(self, keys: usize, arguments: usize) -> &'a mut Vec<u8> {
        append_header(self.out, b'*', 3 + keys + arguments);
        append_bulk(self.out, self.word.as_bytes());
        append_bulk(self.out, self.script.as_bytes());
        append_bulk_number(self.out, keys as u64);
        self.out
    }
}

fn encode_all(entries: &[VoteEntry], first: &VoteEntry, call: ScriptEncoder<'_>) {
    let out = call.parts(2 * entries.len(), 3 + 5 * entries.len());
    for entry in entries {
        append_bulk_of(out, &first.keys.lock_parts(&entry.held().name));
    }
    for entry in entries {
        append_bulk(out, first.keys.fence(&entry.held().name).as_ref());
    }
    let bounds = first.bounds;
    append_bulk_number(out, micros(bounds.below));
    append_bulk_number(out, micros(bounds.above));
    append_bulk(out, if bounds.always { b"always" } else { b"" });
    for entry in entries {
        let (held, ballot) = (entry.held(), entry.request.ballot());
        append_bulk(out, held.id.as_str().as_bytes());
        append_bulk_number(out, u64::try_from(held.ttl.as_millis()).unwrap_or(u64::MAX));
        append_bulk_number(out, entry.in_flight.latest_us);
        append_bulk_number(out, ballot.first);
        append_bulk_number(out, ballot.fences.into());
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn is_unknown_script(error: &str) -> bool {
    error.starts_with("NOSCRIPT")
}
