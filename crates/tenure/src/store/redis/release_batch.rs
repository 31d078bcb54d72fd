//! Releases several locks in one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::command::{append_bulk, append_bulk_number, append_bulk_of, append_header};
use super::connection::{Connection, SendOptions};
use super::fence_counter::FenceCounter;
use super::keys::Keys;
use super::operation::reply::released;
use super::request_queue::{Entry, ReleaseEntry, Released};
use super::script::RELEASE_ALL;
use super::server_error;
use super::slot_batches::SlotBatch;
use super::value::Value;
use super::wire::WireError;
use crate::error::ErrorKind;
use crate::layout::Layout;
use crate::store::{Failure, LeaseSpec, ReleaseReply};
use crate::timings::Call;

/// Releases that one script serves.
pub(super) struct ReleaseBatch {
    entries: Vec<ReleaseEntry>,
    keys: Keys,
    /// Whether messages stay in the shard of their lock.
    sharded: bool,
    /// Whether the script is sent with its text, because the server does not know it.
    by_text: bool,
}

impl Connection {
    /// Releases a lock together with what other callers release. `None` if nothing was changed, and
    /// release.lua must decide.
    pub(super) async fn release_together(
        self: &Arc<Self>,
        lease: &LeaseSpec,
        counter: FenceCounter,
    ) -> Result<Option<ReleaseReply>, Failure> {
        let (reply, released) = oneshot::channel();
        let entry = ReleaseEntry {
            name: lease.name.clone(),
            id: lease.id.clone(),
            counter,
            asked_at: self.clock().now(),
            reply,
        };
        let start = self.start_call();
        let released = async {
            self.combine(Entry::Release(entry));
            released.await.unwrap_or(Err(WireError::Closed))
        };
        let released = self.await_reply(released, SendOptions::on_caller()).await;
        self.finish_call(&start, || Call::Release, &released);
        match released? {
            Released::Done(reply) => Ok(Some(reply)),
            Released::Undecided => Ok(None),
            Released::Failed(failure) => Err(*failure),
        }
    }
}

impl Connection {
    fn note_release_all_error(&self, error: &str) {
        let queue = self.queue();
        if is_unknown_script(error) {
            queue.release_all_unknown.store(true, Ordering::Relaxed);
        } else if self.refusal(error).error.kind() == ErrorKind::Denied {
            queue.release_all_denied.store(true, Ordering::Relaxed);
        }
    }

    /// A script failed midway: it may have released the lock.
    fn released_partly(&self, error: &str) -> Released {
        Released::Failed(Box::new(Failure {
            in_flight: Some(self.in_flight(0)),
            ..self.refusal(error)
        }))
    }
}

impl SlotBatch for ReleaseBatch {
    type Entry = ReleaseEntry;

    fn counter(entry: &ReleaseEntry) -> FenceCounter {
        entry.counter
    }

    fn new(connection: &Connection, entries: Vec<ReleaseEntry>) -> Self {
        let by_text = entries.len() > 1 && connection.queue().take_release_all_unknown();
        Self {
            entries,
            keys: connection.keys().clone(),
            sharded: connection.is_sharded(),
            by_text,
        }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn replies(&self) -> usize {
        usize::from(!self.entries.is_empty())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match &self.entries[..] {
            [] => {}
            [alone] => alone.encode(&self.keys, self.sharded, out),
            entries => encode_all(entries, &self.keys, self.by_text, out),
        }
    }

    fn finish(mut self, connection: &Connection, mut replies: Vec<Value>) {
        let reply = replies.pop().unwrap_or(Value::Nil);
        if self.entries.len() == 1 {
            for entry in self.entries.drain(..) {
                let released = entry.read(connection, &reply);
                // The caller may have gone: the engine repeats the release.
                let _ = entry.reply.send(Ok(released));
            }
            return;
        }
        if let Some(error) = reply.error() {
            connection.note_release_all_error(error);
        }
        // After an error nothing was changed: the only write is the last command of the script.
        let results = reply.as_array().unwrap_or_default();
        for (at, entry) in self.entries.into_iter().enumerate() {
            let released = if results.get(at) == Some(&Value::Int(1)) {
                Released::Done(ReleaseReply::WasHeld { offered_to: None })
            } else {
                Released::Undecided
            };
            let _ = entry.reply.send(Ok(released));
        }
    }

    fn fail(self, error: &WireError) {
        for entry in self.entries {
            let _ = entry.reply.send(Err(error.clone()));
        }
    }
}

impl ReleaseEntry {
    /// On its own, it needs no second call if clients wait for the lock.
    fn encode(&self, keys: &Keys, sharded: bool, out: &mut Vec<u8>) {
        let script = &Layout::Native.scripts(sharded).exclusive.release;
        append_header(out, b'*', 9);
        for word in ["EVALSHA", script.hash(), "5"] {
            append_bulk(out, word.as_bytes());
        }
        append_bulk_of(out, &keys.lock_parts(&self.name));
        for role in ["queue", "alive"] {
            append_bulk_of(out, &keys.neighbour_parts(&self.name, role));
        }
        let own_counter = keys.neighbour_parts(&self.name, "fences");
        match self.counter {
            FenceCounter::Shared => append_bulk_of(out, &keys.shared_counter_parts()),
            FenceCounter::OfEachLock(_) => append_bulk_of(out, &own_counter),
        }
        append_bulk_of(out, &own_counter);
        append_bulk(out, self.id.as_str().as_bytes());
    }

    fn read(&self, connection: &Connection, reply: &Value) -> Released {
        match reply.error() {
            Some(error) if is_unknown_script(error) => Released::Undecided,
            Some(error) if server_error::ran_partly(error) => connection.released_partly(error),
            Some(error) => Released::Failed(Box::new(connection.refusal(error))),
            None => match released(Layout::Native, &self.name, reply, self.asked_at) {
                Ok(reply) => Released::Done(reply),
                Err(failure) => Released::Failed(Box::new(failure)),
            },
        }
    }
}

fn encode_all(entries: &[ReleaseEntry], keys: &Keys, by_text: bool, out: &mut Vec<u8>) {
    let (word, script) = if by_text {
        (&b"EVAL"[..], RELEASE_ALL.code())
    } else {
        (&b"EVALSHA"[..], RELEASE_ALL.hash())
    };
    let count = 2 * entries.len();
    append_header(out, b'*', 3 + count + entries.len());
    append_bulk(out, word);
    append_bulk(out, script.as_bytes());
    append_bulk_number(out, count as u64);
    for entry in entries {
        append_bulk_of(out, &keys.lock_parts(&entry.name));
    }
    for entry in entries {
        append_bulk_of(out, &keys.neighbour_parts(&entry.name, "queue"));
    }
    for entry in entries {
        append_bulk(out, entry.id.as_str().as_bytes());
    }
}

fn is_unknown_script(error: &str) -> bool {
    error.starts_with("NOSCRIPT")
}
