//! Acquires a free lock without a script.
//!
//! Running a script costs the server more than everything that a grant needs. So a lock that is
//! acquired again and again is acquired by a transaction of plain commands: set the key unless it
//! exists, and mint the fence. It grants exactly what acquire.lua grants, or nothing; if anything is
//! unusual, acquire.lua runs next, and finds its own lease.
//!
//! One thing that a script would check is checked here afterwards. The lease has an absolute end, so
//! that an attempt which runs late ends when it should have; the fence tells how much of the ttl is
//! left. `XADD` mints it by the server's clock, to the millisecond, whatever happened to the counter:
//! the clock was not later than that. Ten times a second the transaction also reads the clock itself,
//! to notice that it was set. It never creates a counter, which would have no expiry.

use std::time::Duration;

use super::command::Pipeline;
use super::connection::{Connection, SendOptions};
use super::transaction_candidates::AHEAD_MAX_US;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::store::{AcquireReply, Attempt, Busy, Failure, InFlight};

/// How far the server's clock may be behind the expected value, in microseconds.
const BEHIND_MAX_US: u64 = 500_000;
/// The largest fence that Lua and JSON represent exactly.
const FENCE_MAX: u64 = (1 << 53) - 2;
/// How many fences there are in a millisecond: one for each microsecond.
const FENCES_IN_A_MS: u64 = 1_000;

/// An attempt, ready to be sent.
pub(super) struct Transaction {
    commands: Pipeline,
    sent_at: Moment,
    /// Until when it may still run: a lease granted by then has expired.
    pub(super) in_flight: InFlight,
}

impl Transaction {
    pub(super) fn new(connection: &Connection, attempt: &Attempt) -> Self {
        let held = &attempt.held;
        let sent_at = connection.clock().now();
        // One more, so that rounding never shortens the lease.
        let end_ms = connection.server_us(sent_at + held.ttl) / 1_000 + 1;
        let mut commands = Pipeline::with_capacity(5);
        // Not the client crate's own transaction, which panics where MULTI is forbidden.
        commands.cmd("MULTI");
        let set = commands.cmd("SET").arg(held.name.as_str());
        set.arg(held.id.as_str()).arg("NX").arg("GET");
        set.arg("PXAT").arg(end_ms);
        let mint = commands
            .cmd("XADD")
            .arg(Layout::Native.counter_key(&held.name));
        mint.arg("NOMKSTREAM").arg("MAXLEN").arg(0);
        mint.arg("*").arg("f").arg("");
        if !connection.knows_clock(sent_at) {
            commands.cmd("TIME");
        }
        commands.cmd("EXEC");
        Self {
            commands,
            sent_at,
            in_flight: connection.in_flight(end_ms * 1_000),
        }
    }

    pub(super) async fn run(
        self,
        connection: &Connection,
        attempt: &Attempt,
    ) -> Result<AcquireReply, Failure> {
        let options = SendOptions::on_caller().latest(self.in_flight.latest_us);
        let answer = connection.run_transaction(&self.commands, options).await;
        let candidates = connection.transaction_candidates();
        let attempted = match answer {
            Ok(replies) => self
                .read(connection, attempt, &replies)
                .map_err(|failure| Failure {
                    in_flight: Some(self.in_flight),
                    ..failure
                }),
            // Without a reply it may still run; refused as a whole, it did nothing.
            Err(failure) => Err(failure),
        };
        match &attempted {
            Ok(AcquireReply::Granted { .. }) => {}
            Ok(_) => candidates.forget(&attempt.held.name),
            Err(failure) => {
                candidates.forget(&attempt.held.name);
                if failure.error.kind() == ErrorKind::Denied {
                    candidates.refuse_all();
                }
            }
        }
        // Whatever went wrong, acquire.lua finds out more.
        attempted.map_err(|failure| Failure {
            transient: true,
            ..failure
        })
    }

    /// The moment from which the lease has a whole ttl. The transaction ran after it was sent, when
    /// the server's clock showed this at most. So the lease lasts at least for the time left until
    /// its end, counted from when it was sent, whatever the clock did before.
    fn counts_from(&self, ttl: Duration, clock_us: u64) -> Moment {
        let left = Duration::from_micros(self.in_flight.latest_us.saturating_sub(clock_us));
        self.sent_at.before(ttl.saturating_sub(left))
    }

    fn read(
        &self,
        connection: &Connection,
        attempt: &Attempt,
        replies: &[Value],
    ) -> Result<AcquireReply, Failure> {
        let strange = |what: &str| {
            Failure::not_sent(Error::new(
                ErrorKind::Unavailable,
                format!("unusable reply for lock `{}`: {what}", attempt.held.name),
            ))
        };
        let [holder, fence, time @ ..] = replies else {
            return Err(strange("it is incomplete"));
        };
        match holder {
            Value::Nil => {}
            Value::Bytes(_) => {
                let holder = LeaseId::new(holder.lossy().unwrap_or_default());
                let remaining = None;
                return Ok(AcquireReply::Busy(Busy { holder, remaining }));
            }
            _ => return Err(strange("the key may not be a lock")),
        }
        let fence = parse_fence(fence).filter(|fence| *fence <= FENCE_MAX);
        let fence = fence.ok_or_else(|| strange("its fence counter was lost or is exhausted"))?;
        let expected_us = connection.server_us(connection.clock().now());
        let latest_us = match time.first() {
            Some(time) => {
                let server_us = time.as_server_time_us();
                let server_us = server_us.ok_or_else(|| strange("it contains no time"))?;
                connection.set_clock(self.sent_at, server_us);
                server_us
            }
            None => fence / FENCES_IN_A_MS * FENCES_IN_A_MS + FENCES_IN_A_MS - 1,
        };
        if latest_us > expected_us + AHEAD_MAX_US || latest_us + BEHIND_MAX_US < expected_us {
            if time.is_empty() {
                connection.doubt_clock();
            }
            return Err(strange(
                "the server's clock or the fence counter was changed",
            ));
        }
        Ok(AcquireReply::Granted {
            fence: Fence::new(fence),
            sent_at: self.counts_from(attempt.held.ttl, latest_us),
        })
    }
}

/// The fence for an id of the counter. A sequence that has outgrown its millisecond is left to the
/// script, which carries over.
fn parse_fence(id: &Value) -> Option<u64> {
    let (ms, sequence) = id.as_str()?.split_once('-')?;
    let sequence = sequence.parse().ok().filter(|it| *it < FENCES_IN_A_MS)?;
    let ms: u64 = ms.parse().ok()?;
    ms.checked_mul(FENCES_IN_A_MS)?.checked_add(sequence)
}
