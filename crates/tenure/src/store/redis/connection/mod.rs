//! An established connection to one server.
//!
//! A command is sent at most once. If no reply comes, the caller
//! learns on which connection the command was sent, so that it can clean up in order.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::keys::Keys;
use super::request_queue::RequestQueue;
use super::response_watch::ResponseWatch;
use super::server::Server;
use super::server_error;
use super::told_offer::ClockReading;
use super::transaction_candidates::TransactionCandidates;
use super::trusted_primary::TrustedPrimary;
use super::value::Value;
use super::wire::Wire;
use crate::error::{Error, ErrorKind};
use crate::moment::Clock;
use crate::store::{Failure, InFlight};
use crate::timings::NodeTimings;
use crate::url::RedisTarget;

mod handshake;
mod request;
mod response_timeout;
mod send_options;
mod server_clock;
mod subscribe;
mod timing;

pub(crate) use self::send_options::SendOptions;

/// An established connection.
pub(crate) struct Connection {
    pub(crate) id: u64,
    wire: Wire,
    server: Arc<Server>,
    /// Where it leads.
    target: Arc<RedisTarget>,
    /// Cancelled when the connection is closed.
    closed: CancellationToken,
    response_watch: ResponseWatch,
    queue: RequestQueue,
    transaction_candidates: TransactionCandidates,
    timings: Arc<NodeTimings>,
    /// The server's clock minus ours, in microseconds.
    clock_offset_us: AtomicI64,
    /// When the clock was read, in nanoseconds of the boot clock; 0 if it is in doubt.
    clock_read_at: AtomicU64,
    /// The same reading, if it is not a guess.
    clock_reading: Mutex<Option<ClockReading>>,
}

impl Connection {
    pub(super) fn new(server: &Arc<Server>, endpoint: &Endpoint, wire: Wire) -> Self {
        Self {
            id: server.next_connection_id(),
            wire,
            server: Arc::clone(server),
            target: Arc::clone(&endpoint.target),
            closed: endpoint.moved.child_token(),
            response_watch: ResponseWatch::default(),
            queue: RequestQueue::default(),
            transaction_candidates: TransactionCandidates::default(),
            timings: server
                .stats
                .timings
                .node(&endpoint.target.address.to_string()),
            clock_offset_us: AtomicI64::new(0),
            clock_read_at: AtomicU64::new(0),
            clock_reading: Mutex::default(),
        }
    }

    pub(super) fn target(&self) -> &RedisTarget {
        &self.target
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until the connection is closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Closes it. Pending requests fail at once.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.wire.close();
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The requests of concurrent callers, which travel together.
    pub(super) fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    pub(super) fn response_watch(&self) -> &ResponseWatch {
        &self.response_watch
    }

    /// The locks that may be acquired without a script.
    pub(super) fn transaction_candidates(&self) -> &TransactionCandidates {
        &self.transaction_candidates
    }

    /// The primary there that may grant new locks: shared by all connections to this server.
    pub(super) fn trusted_primary(&self) -> &TrustedPrimary {
        &self.server.trusted_primary
    }

    /// Whether the locks of the server share one fence counter.
    pub(super) fn shares_counter(&self) -> bool {
        self.server.shares_counter()
    }

    /// How the keys of its locks are named.
    pub(super) fn keys(&self) -> &Keys {
        &self.server.keys
    }

    /// Whether messages stay in the shard of their lock.
    pub(super) fn is_sharded(&self) -> bool {
        self.server.sharded
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.server.clock
    }

    /// A request sent now, should its reply get lost.
    pub(super) fn in_flight(&self, latest_us: u64) -> InFlight {
        InFlight {
            connection: Some(self.id),
            latest_us,
        }
    }

    /// The failure for an error among several replies.
    pub(super) fn failure_from_reply(&self, error: &str) -> Failure {
        let (code, detail) = error.split_once(' ').unwrap_or((error, ""));
        server_error::from_reply(&self.target, code, detail)
    }

    /// The failure of a request that ran too late and so changed nothing.
    pub(super) fn too_late(&self) -> Failure {
        server_error::no_reply(&self.target, None)
    }

    /// The failure of a request that was too late again and again.
    pub(super) fn clock_runs_away(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!("the clock of `{}` runs too fast", self.target),
        ))
    }

    /// The failure of a request that met another primary again and again.
    pub(super) fn primaries_change(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "a different primary replies at `{}` each time: is a failover in progress?",
                self.target
            ),
        ))
    }

    /// The reply, or the failure if it is an error or contains one.
    fn check_error(&self, value: Value) -> Result<Value, Failure> {
        match value.error() {
            Some(error) => Err(self.refusal(error)),
            None => Ok(value),
        }
    }

    /// The failure for an error reply. A primary that has become a replica is not used again.
    pub(super) fn refusal(&self, error: &str) -> Failure {
        let failure = self.failure_from_reply(error);
        let is_key_refused = error.starts_with("CROSSSLOT")
            || failure.error.kind() == ErrorKind::Denied && error.contains("key");
        if is_key_refused && self.shares_counter() {
            // It may be the shared counter, and nothing was done. The next attempt goes without.
            self.server.wants_one_slot();
            return Failure {
                transient: true,
                ..failure
            };
        }
        if failure.error.kind() != ErrorKind::ReadOnly {
            return failure;
        }
        // If it is promoted again, it is another primary.
        self.close();
        if !self.server.moves() {
            return failure;
        }
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "`{}` has become a replica: waiting for the Sentinels of `{}` to report the new \
                 primary",
                self.target, self.server
            ),
        ))
    }
}
