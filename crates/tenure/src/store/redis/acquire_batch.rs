//! Acquires free locks without a script, several in one call.
//!
//! Running a script costs the server more than everything that a grant needs. So most locks are
//! acquired by a transaction of plain commands: set the key unless it exists, and mint the fence. It
//! grants exactly what acquire.lua grants, or nothing; if anything is unusual, acquire.lua runs next,
//! and finds its own lease. The transaction has the attempts of all callers that ask at the same time,
//! in a cluster those for one slot, and each of them has its own outcome. Where all locks share a
//! counter, they share one fence, which is greater than all before it: what counts is the order of the
//! grants of one lock. In a cluster each lock has its own counter, and the transaction raises them all.
//!
//! Some things that a script would check are checked here afterwards. Where locks share a counter, one
//! with a counter of its own is left to the script. The lease has an absolute end, so that an attempt
//! which runs late ends when it should have; the fence tells how much of the ttl is left. `XADD` mints
//! it by the server's clock, to the millisecond, whatever happened to the counter: the clock was not
//! later than that. Ten times a second the transaction also reads the clock itself, to notice that it
//! was set. It never creates a counter, which would have no expiry.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::command::{
    append_bulk, append_bulk_number, append_bulk_of, append_command, append_header,
};
use super::connection::{Connection, SendOptions};
use super::fence_counter::FenceCounter;
use super::keys::Keys;
use super::request_queue::{AcquireEntry, Entry};
use super::slot_batches::SlotBatch;
use super::transaction_candidates::AHEAD_MAX_US;
use super::value::Value;
use super::wire::WireError;
use crate::error::{Error, ErrorKind};
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{AcquireReply, Attempt, Busy, Failure, InFlight, Slots};
use crate::timings::Call;

/// How far the server's clock may be behind the expected value, in microseconds.
const BEHIND_MAX_US: u64 = 500_000;
/// The largest fence that Lua and JSON represent exactly.
const FENCE_MAX: u64 = (1 << 53) - 2;
/// How many fences there are in a millisecond: one for each microsecond.
const FENCES_IN_A_MS: u64 = 1_000;

/// Attempts that are sent in one transaction.
pub(super) struct AcquireBatch {
    entries: Vec<AcquireEntry>,
    counter: FenceCounter,
    keys: Keys,
    sent_at: Moment,
    reads_clock: bool,
}

/// An attempt by transaction, before it is sent.
pub(super) struct TransactionAttempt<'a> {
    attempt: &'a Attempt,
    counter: FenceCounter,
    end_ms: u64,
    /// Until when it may still run: a lease granted by then has expired.
    pub(super) in_flight: InFlight,
}

impl<'a> TransactionAttempt<'a> {
    pub(super) fn new(
        connection: &Connection,
        attempt: &'a Attempt,
        counter: FenceCounter,
    ) -> Self {
        let expected_end = connection.clock().now() + attempt.held.ttl;
        // One more, so that rounding never shortens the lease.
        let end_ms = connection.server_us(expected_end) / 1_000 + 1;
        Self {
            attempt,
            counter,
            end_ms,
            in_flight: connection.in_flight(end_ms * 1_000),
        }
    }

    /// Sends it, together with those of other callers.
    pub(super) async fn run(self, connection: &Arc<Connection>) -> Result<AcquireReply, Failure> {
        let held = &self.attempt.held;
        let (reply, attempted) = oneshot::channel();
        let entry = AcquireEntry {
            name: held.name.clone(),
            id: held.id.clone(),
            counter: self.counter,
            ttl: held.ttl,
            end_ms: self.end_ms,
            reply,
        };
        let start = connection.start_call();
        let attempted = async {
            connection.combine(Entry::Acquire(entry));
            attempted.await.unwrap_or(Err(WireError::Closed))
        };
        let options = SendOptions::on_caller().latest(self.in_flight.latest_us);
        let attempted = connection.await_reply(attempted, options).await;
        let attempted = attempted.and_then(|attempted| attempted);
        connection.finish_call(&start, || Call::Acquire, &attempted);
        if !matches!(attempted, Ok(AcquireReply::Granted { .. })) {
            let candidates = connection.transaction_candidates();
            candidates.leave_to_script(&held.name, connection.clock().now());
            if attempted
                .as_ref()
                .is_err_and(|it| it.error.kind() == ErrorKind::Denied)
            {
                candidates.refuse_all();
            }
        }
        // Whatever went wrong, acquire.lua finds out more.
        attempted.map_err(|failure| Failure {
            transient: true,
            ..failure
        })
    }
}

impl SlotBatch for AcquireBatch {
    type Entry = AcquireEntry;

    fn counter(entry: &AcquireEntry) -> FenceCounter {
        entry.counter
    }

    fn new(connection: &Connection, entries: Vec<AcquireEntry>) -> Self {
        let sent_at = connection.clock().now();
        let counter = entries.first().map(|entry| entry.counter);
        Self {
            reads_clock: !entries.is_empty() && !connection.knows_clock(sent_at),
            counter: counter.unwrap_or(FenceCounter::Shared),
            keys: connection.keys().clone(),
            entries,
            sent_at,
        }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// To `MULTI`, one for each attempt, those that mint, perhaps to `TIME`, and to `EXEC`.
    fn replies(&self) -> usize {
        match self.entries.len() {
            0 => 0,
            count => 2 + count + self.minting_commands() + usize::from(self.reads_clock),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if self.entries.is_empty() {
            return;
        }
        append_command(out, &[b"MULTI"]);
        for entry in &self.entries {
            append_header(out, b'*', 7);
            append_bulk(out, b"SET");
            append_bulk_of(out, &self.keys.lock_parts(&entry.name));
            for word in [entry.id.as_str().as_bytes(), b"NX", b"GET", b"PXAT"] {
                append_bulk(out, word);
            }
            append_bulk_number(out, entry.end_ms);
        }
        match self.counter {
            FenceCounter::Shared => {
                append_mint(out, &self.keys.shared_counter_parts());
                append_header(out, b'*', 1 + self.entries.len());
                append_bulk(out, b"EXISTS");
                for entry in &self.entries {
                    append_bulk_of(out, &self.keys.neighbour_parts(&entry.name, "fences"));
                }
            }
            FenceCounter::OfEachLock(_) => {
                for entry in &self.entries {
                    append_mint(out, &self.keys.neighbour_parts(&entry.name, "fences"));
                }
            }
        }
        if self.reads_clock {
            append_command(out, &[b"TIME"]);
        }
        append_command(out, &[b"EXEC"]);
    }

    fn finish(self, connection: &Connection, mut replies: Vec<Value>) {
        let mut results = match replies.pop() {
            Some(Value::Array(results)) => results,
            whole => return self.refused(connection, &replies, whole.as_ref()),
        };
        let count = self.entries.len();
        plant_bugs(results.get_mut(..count).unwrap_or_default());
        let expected_us = connection.server_us(connection.clock().now());
        let server_us = results.get(count + self.minting_commands());
        let server_us = server_us.and_then(Value::as_server_time_us);
        if let Some(server_us) = server_us {
            connection.set_clock(self.sent_at, server_us);
        }
        let checks = GrantChecks {
            connection,
            may_have_own_counters: self.counter == FenceCounter::Shared
                && results.get(count + 1) != Some(&Value::Int(0)),
            expected_us,
            server_us,
            is_clock_missing: self.reads_clock && server_us.is_none(),
            sent_at: self.sent_at,
        };
        for (at, entry) in self.entries.into_iter().enumerate() {
            let minted_at = count + self.counter.position(at);
            let fence = results.get(minted_at).and_then(parse_fence);
            let attempted = checks.read(&entry, results.get(at), fence);
            let attempted = attempted.map_err(|failure| Failure {
                in_flight: Some(connection.in_flight(entry.latest_us())),
                ..failure
            });
            // The caller may have gone: the engine cancels the attempt.
            let _ = entry.reply.send(Ok(attempted));
        }
    }

    fn fail(self, error: &WireError) {
        for entry in self.entries {
            let _ = entry.reply.send(Err(error.clone()));
        }
    }
}

impl AcquireBatch {
    /// How many commands mint the fences. Where locks share a counter, one mints, and one looks for
    /// counters of single locks.
    fn minting_commands(&self) -> usize {
        match self.counter {
            FenceCounter::Shared => 2,
            FenceCounter::OfEachLock(_) => self.entries.len(),
        }
    }

    /// The transaction as a whole was refused. `replies` are those before the one to `EXEC`.
    fn refused(self, connection: &Connection, replies: &[Value], whole: Option<&Value>) {
        let error_at = |at: usize| replies.get(at).and_then(Value::error);
        // Without `MULTI`, the commands ran one by one.
        let ran = error_at(0).is_some();
        let whole = whole.and_then(Value::error).unwrap_or("no transaction");
        if !ran && whole.starts_with("NOPERM") {
            // A user that may begin a transaction but not end it would stay in it forever.
            connection.close();
        }
        // A command that cannot be queued makes `EXEC` do nothing, and its error tells why. The other
        // attempts did nothing wrong.
        let aborted = !ran && whole.starts_with("EXECABORT");
        let count = self.entries.len();
        let for_all = match self.counter {
            FenceCounter::Shared => (1 + count..3 + count).find_map(error_at),
            FenceCounter::OfEachLock(_) => error_at(0),
        };
        for (at, entry) in self.entries.into_iter().enumerate() {
            let minted_at = 1 + count + self.counter.position(at);
            let own = error_at(0).or_else(|| error_at(1 + at));
            let own = own.or_else(|| error_at(minted_at)).or(for_all);
            let failure = match own {
                Some(error) => connection.refusal(error),
                None if aborted => strange(&entry.name, "another lock was refused"),
                None => connection.refusal(whole),
            };
            let in_flight = ran.then(|| connection.in_flight(entry.latest_us()));
            let failure = Failure {
                in_flight,
                ..failure
            };
            let _ = entry.reply.send(Ok(Err(failure)));
        }
    }
}

impl AcquireEntry {
    fn latest_us(&self) -> u64 {
        self.end_ms * 1_000
    }

    /// The moment from which the lease has a whole ttl. The transaction ran after it was sent, when
    /// the server's clock showed this at most. So the lease lasts at least for the time left until
    /// its end, counted from when it was sent, whatever the clock did before.
    fn counts_from(&self, sent_at: Moment, clock_us: u64) -> Moment {
        let left = Duration::from_micros(self.latest_us().saturating_sub(clock_us));
        sent_at.before(self.ttl.saturating_sub(left))
    }
}

/// What a transaction found out for all its attempts.
struct GrantChecks<'a> {
    connection: &'a Connection,
    /// Whether one of the locks may have a fence counter of its own beside the shared one.
    may_have_own_counters: bool,
    /// The latest that the server's clock could show by now.
    expected_us: u64,
    /// What it showed, if the transaction read it.
    server_us: Option<u64>,
    /// Whether the transaction tried to read it and failed.
    is_clock_missing: bool,
    sent_at: Moment,
}

impl GrantChecks<'_> {
    /// The outcome of one attempt, by who held the lock and the fence that was minted.
    fn read(
        &self,
        entry: &AcquireEntry,
        holder: Option<&Value>,
        fence: Option<u64>,
    ) -> Result<AcquireReply, Failure> {
        let strange = |what: &str| strange(&entry.name, what);
        match holder {
            None => return Err(strange("it is incomplete")),
            Some(Value::Nil) => {}
            Some(holder @ Value::Bytes(_)) => {
                let holder = LeaseId::new(holder.lossy().unwrap_or_default());
                let remaining = None;
                return Ok(AcquireReply::Busy(Busy {
                    holder,
                    remaining,
                    ask_after: None,
                }));
            }
            Some(_) => return Err(strange("the key may not be a lock")),
        }
        let fence = fence.filter(|fence| *fence <= FENCE_MAX);
        let fence = fence.ok_or_else(|| strange("the fence counter was lost or is exhausted"))?;
        if self.may_have_own_counters && !bug(Bug::OwnCounterIgnored) {
            return Err(strange("it may have a fence counter of its own"));
        }
        if self.is_clock_missing {
            return Err(strange("it contains no time"));
        }
        let by_fence = fence / FENCES_IN_A_MS * FENCES_IN_A_MS + FENCES_IN_A_MS - 1;
        let latest_us = self.server_us.unwrap_or(by_fence);
        let expected_us = self.expected_us;
        if latest_us > expected_us + AHEAD_MAX_US || latest_us + BEHIND_MAX_US < expected_us {
            if self.server_us.is_none() {
                self.connection.doubt_clock();
            }
            return Err(strange(
                "the server's clock or the fence counter was changed",
            ));
        }
        Ok(AcquireReply::Granted {
            fence: Fence::new(fence),
            sent_at: entry.counts_from(self.sent_at, latest_us),
            slots: Slots::default(),
        })
    }
}

/// Mints a fence by the server's clock, if the counter exists.
fn append_mint(out: &mut Vec<u8>, counter: &[&str]) {
    let by_clock = [&b"NOMKSTREAM"[..], b"MAXLEN", b"0", b"*", b"f", b""];
    append_header(out, b'*', 2 + by_clock.len());
    append_bulk(out, b"XADD");
    append_bulk_of(out, counter);
    for word in by_clock {
        append_bulk(out, word);
    }
}

/// `holders` are the replies to each `SET`.
fn plant_bugs(holders: &mut [Value]) {
    if bug(Bug::BatchMixesOutcomes) && holders.len() >= 2 {
        holders.rotate_left(1);
    }
    if bug(Bug::BatchSharesBusy)
        && let Some(holder) = holders.iter().find(|it| !it.is_nil()).cloned()
    {
        holders.fill(holder);
    }
}

fn strange(name: &LockName, what: &str) -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        format!("unusable reply for lock `{name}`: {what}"),
    ))
}

/// The fence for an id of the counter. A sequence that has outgrown its millisecond is left to the
/// script, which carries over.
fn parse_fence(id: &Value) -> Option<u64> {
    let (ms, sequence) = id.as_str()?.split_once('-')?;
    let sequence = sequence.parse().ok().filter(|it| *it < FENCES_IN_A_MS)?;
    let ms: u64 = ms.parse().ok()?;
    ms.checked_mul(FENCES_IN_A_MS)?.checked_add(sequence)
}
