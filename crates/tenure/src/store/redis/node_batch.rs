//! Requests of one kind to one node of a Redlock that are sent together: votes, or releases.
//!
//! Those that one script serves share a call. The others have a call each, and so has each request of a
//! call that is refused as a whole, because one key is forbidden or the script is unknown.

use std::sync::atomic::Ordering;

use super::command::{append_bulk, append_bulk_number, append_header};
use super::connection::Connection;
use super::keys::Keys;
use super::operation::{Operation, ServerContext};
use super::request_queue::Entry;
use super::script::{RedlockScripts, Script};
use super::server_error;
use super::value::Value;
use super::vote_request::{BatchScript, Delivery, VoteScripts};
use super::wire::WireError;
use crate::error::ErrorKind;
use crate::moment::Moment;
use crate::store::{Failure, InFlight};
use crate::timings::Call;

/// A request to a node, in the queue of its connection or on its way.
pub(super) trait NodeRequest: Sized {
    /// What it is for the timings.
    const CALL: Call;

    type Reply;

    fn keys(&self) -> &Keys;

    fn delivery(&self) -> Delivery;
    fn set_delivery(&mut self, delivery: Delivery);

    /// The script that serves several, and what the server thinks of it.
    fn script_for_all(scripts: &RedlockScripts) -> &Script;
    fn state_of_script(scripts: &VoteScripts) -> &BatchScript;

    /// Writes what follows the name of that script.
    fn encode_all(entries: &[Self], call: ScriptEncoder<'_>);

    /// What it asks for, if it is sent alone.
    fn operation(&self) -> impl Operation;

    /// What is in flight if there is no reply.
    fn in_flight(&self, connection: Option<&Connection>) -> InFlight;

    /// What a reply to it alone means.
    fn read(
        &self,
        connection: &Connection,
        reply: Value,
        sent_at: Moment,
    ) -> Result<Self::Reply, Failure>;

    /// What its part of the reply to a common call means; `None` if it must be sent again, alone.
    fn read_part(
        &self,
        connection: &Connection,
        part: Value,
        sent_at: Moment,
    ) -> Option<Result<Self::Reply, Failure>>;

    /// When it was asked for; only if timings are wanted.
    fn started_at(&self) -> Option<Moment>;

    /// Gives the reply to the one who asked.
    fn answer(self, reply: Result<Self::Reply, Failure>);

    fn into_entry(self) -> Entry;

    /// Spoils the parts of the reply to a common call, if a bug is planted.
    fn plant_bug(_parts: &mut [Value]) {}
}

/// Requests that are sent together.
pub(super) struct NodeBatch<R> {
    /// Those of one call.
    together: Vec<R>,
    /// Whether that is sent with the text of its script.
    by_text: bool,
    alone: Vec<R>,
    sent_at: Moment,
}

impl BatchScript {
    /// Whether requests may be sent by this script.
    pub(super) fn is_allowed(&self) -> bool {
        !self.denied.load(Ordering::Relaxed)
    }

    /// Whether the next call has to carry the text.
    fn take_unknown(&self) -> bool {
        self.unknown.load(Ordering::Relaxed) && self.unknown.swap(false, Ordering::Relaxed)
    }

    /// Notes why a call was refused. True if the requests are worth sending one by one.
    fn note_refusal(&self, connection: &Connection, error: &str) -> bool {
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

impl<R: NodeRequest> NodeBatch<R> {
    /// A batch of requests that may share a call, and of those that may not.
    pub(super) fn new(connection: &Connection, mut together: Vec<R>, mut alone: Vec<R>) -> Self {
        if together.len() == 1 {
            alone.append(&mut together);
        }
        let script = R::state_of_script(&connection.queue().vote_scripts);
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
            let script = R::script_for_all(first.keys().layout.redlock_scripts());
            R::encode_all(
                &self.together,
                ScriptEncoder::new(out, script, self.by_text),
            );
        }
        for request in &self.alone {
            encode_alone(request, out);
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
        for request in self.alone {
            let reply = replies.next().unwrap_or(Value::Nil);
            finish_alone(connection, request, reply, self.sent_at);
        }
    }

    pub(super) fn fail(self, connection: Option<&Connection>, error: &WireError) {
        if let Some(connection) = connection {
            connection.response_watch().settled(self.len(), None);
        }
        for request in self.together.into_iter().chain(self.alone) {
            let failure = no_reply(connection, error, request.in_flight(connection));
            match connection {
                Some(connection) => finish(connection, request, Err(failure)),
                None => request.answer(Err(failure)),
            }
        }
    }
}

fn encode_alone(request: &impl NodeRequest, out: &mut Vec<u8>) {
    let call = request.operation();
    let call = call.call(&ServerContext {
        keys: request.keys().clone(),
        sharded: false,
        shares_counter: false,
        latest_us: request.in_flight(None).latest_us,
        primary: String::new(),
    });
    let command = match request.delivery() {
        Delivery::AloneByText => call.by_text(),
        Delivery::Together | Delivery::Alone => call.by_hash(),
    };
    command.encode(out);
}

fn finish_alone(connection: &Connection, request: impl NodeRequest, reply: Value, sent_at: Moment) {
    if reply.error().is_some_and(is_unknown_script) && request.delivery() != Delivery::AloneByText {
        return send_again(connection, request, Delivery::AloneByText);
    }
    let reply = match reply.error() {
        Some(error) => Err(refused(connection, &request, error)),
        None => request.read(connection, reply, sent_at),
    };
    finish(connection, request, reply);
}

/// Each request has its part of the reply. If the call was refused as a whole, each is sent alone.
fn finish_together<R: NodeRequest>(
    connection: &Connection,
    requests: Vec<R>,
    reply: Value,
    sent_at: Moment,
) {
    let mut parts = match reply {
        Value::Array(parts) => parts,
        Value::Error(error) => {
            let script = R::state_of_script(&connection.queue().vote_scripts);
            let retry = script.note_refusal(connection, &error);
            for request in requests {
                if retry {
                    send_again(connection, request, Delivery::Alone);
                } else {
                    let failure = refused(connection, &request, &error);
                    finish(connection, request, Err(failure));
                }
            }
            return;
        }
        other => vec![other],
    };
    R::plant_bug(&mut parts);
    let mut parts = parts.into_iter();
    for request in requests {
        let part = parts.next().unwrap_or(Value::Nil);
        let reply = match part.error() {
            Some(error) => Some(Err(refused(connection, &request, error))),
            None => request.read_part(connection, part, sent_at),
        };
        match reply {
            Some(reply) => finish(connection, request, reply),
            None => send_again(connection, request, Delivery::Alone),
        }
    }
}

fn finish<R: NodeRequest>(connection: &Connection, request: R, reply: Result<R::Reply, Failure>) {
    connection.note_call(request.started_at(), || R::CALL, &reply);
    request.answer(reply);
}

/// Sends it once more, unless it is no longer wanted: then a release may be on its way already.
fn send_again(connection: &Connection, mut request: impl NodeRequest, delivery: Delivery) {
    request.set_delivery(delivery);
    connection.response_watch().expect(connection.clock().now());
    // The combiner sends what waits when it is done with these replies.
    connection.queue().waiting().push(request.into_entry());
}

/// A script that failed midway may have done its work.
fn refused(connection: &Connection, request: &impl NodeRequest, error: &str) -> Failure {
    let in_flight = request.in_flight(Some(connection));
    Failure {
        in_flight: server_error::ran_partly(error).then_some(in_flight),
        ..connection.refusal(error)
    }
}

/// The failure of a request whose connection has ended.
fn no_reply(connection: Option<&Connection>, error: &WireError, in_flight: InFlight) -> Failure {
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

fn is_unknown_script(error: &str) -> bool {
    error.starts_with("NOSCRIPT")
}

/// A call of a script that is being written.
pub(super) struct ScriptEncoder<'a> {
    out: &'a mut Vec<u8>,
    word: &'static str,
    script: &'a str,
}

impl<'a> ScriptEncoder<'a> {
    fn new(out: &'a mut Vec<u8>, script: &'a Script, by_text: bool) -> Self {
        let (word, script) = if by_text {
            ("EVAL", script.code())
        } else {
            ("EVALSHA", script.hash())
        };
        Self { out, word, script }
    }

    /// Writes what comes before the keys and arguments.
    pub(super) fn parts(self, keys: usize, arguments: usize) -> &'a mut Vec<u8> {
        append_header(self.out, b'*', 3 + keys + arguments);
        append_bulk(self.out, self.word.as_bytes());
        append_bulk(self.out, self.script.as_bytes());
        append_bulk_number(self.out, keys as u64);
        self.out
    }
}
