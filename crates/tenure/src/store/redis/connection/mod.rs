//! An established connection to one server.
//!
//! A command is sent at most once: the client crate never repeats it. When no answer comes, the
//! caller learns on which connection the command travelled, so that it can clean up in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use ::redis::RedisError;
use ::redis::aio::MultiplexedConnection;
use tokio_util::sync::CancellationToken;

pub(super) use self::request::reply_of;
pub(super) use self::server_clock::micros;

use super::endpoint::Endpoint;
use super::failover_pause::TrustedPrimary;
use super::response_timeout::ResponseWatch;
use super::server::Server;
use super::server_error;
use super::transaction::TransactionCandidates;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::moment::Clock;
use crate::store::{Failure, InFlight};
use crate::timings::NodeTimings;
use crate::url::RedisTarget;

mod caller_request;
mod handshake;
mod request;
mod server_clock;
mod subscribe;
mod timing;

/// An established connection.
pub(crate) struct Connection {
    pub(crate) id: u64,
    inner: MultiplexedConnection,
    server: Arc<Server>,
    /// Where it leads.
    target: Arc<RedisTarget>,
    /// Cancelled when nothing more is expected of this connection.
    closed: CancellationToken,
    response_watch: ResponseWatch,
    transaction_candidates: TransactionCandidates,
    timings: Arc<NodeTimings>,
    /// Since when answers are owed, in nanoseconds of the boot clock; 0 if none are.
    owes_since: AtomicU64,
    /// The server's clock less ours, in microseconds.
    clock_offset_us: AtomicI64,
    /// When that was found out, in nanoseconds of the boot clock; 0 if it is in doubt.
    clock_read_at: AtomicU64,
}

impl Connection {
    pub(super) fn new(
        server: &Arc<Server>,
        endpoint: &Endpoint,
        inner: MultiplexedConnection,
    ) -> Self {
        Self {
            id: server.next_connection_id(),
            inner,
            server: Arc::clone(server),
            target: Arc::clone(&endpoint.target),
            closed: endpoint.moved.child_token(),
            response_watch: ResponseWatch::default(),
            transaction_candidates: TransactionCandidates::default(),
            timings: server
                .stats
                .timings
                .node(&endpoint.target.address.to_string()),
            owes_since: AtomicU64::new(0),
            clock_offset_us: AtomicI64::new(0),
            clock_read_at: AtomicU64::new(0),
        }
    }

    pub(super) fn target(&self) -> &RedisTarget {
        &self.target
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until nothing more is expected of it.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Whoever still waits for an answer is told that none will come.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn response_watch(&self) -> &ResponseWatch {
        &self.response_watch
    }

    /// What is known of locks that can be taken without a script.
    pub(super) fn transaction_candidates(&self) -> &TransactionCandidates {
        &self.transaction_candidates
    }

    /// The master there that may give new locks: the same for all connections to this server.
    pub(super) fn trusted_primary(&self) -> &TrustedPrimary {
        &self.server.trusted_primary
    }

    /// Whether a replica can take the place of the server that it leads to.
    pub(super) fn is_replaceable(&self) -> bool {
        self.server.is_replaceable()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.server.clock
    }

    /// Where a command that was sent now may land.
    pub(super) fn in_flight(&self, latest_us: u64) -> InFlight {
        InFlight {
            connection: Some(self.id),
            latest_us,
        }
    }

    /// The failure that an error inside several replies means.
    pub(super) fn failure_from_reply(&self, error: &str) -> Failure {
        let (code, detail) = error.split_once(' ').unwrap_or((error, ""));
        server_error::from_reply(&self.target, code, detail)
    }

    /// The failure of a question that was carried out too late, and so changed nothing.
    pub(super) fn too_late(&self) -> Failure {
        server_error::no_reply(&self.target, None)
    }

    /// The failure of a question that came too late again and again.
    pub(super) fn clock_runs_away(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the clock of `{}` runs too fast to be followed",
                self.target
            ),
        ))
    }

    /// The failure of a question that met another master again and again.
    pub(super) fn primaries_change(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "another master answers at `{}` each time it is asked: is a failover under way?",
                self.target
            ),
        ))
    }

    fn check_error(&self, value: ::redis::Value) -> Result<Value, Failure> {
        value
            .extract_error()
            .map(Value::of)
            .map_err(|error| self.failure_from(&error, None))
    }

    /// What an error means. A master that has become a replica is not asked again.
    fn failure_from(&self, error: &RedisError, in_flight: Option<InFlight>) -> Failure {
        let failure = server_error::from_error(&self.target, error, in_flight);
        if failure.error.kind() != ErrorKind::ReadOnly {
            return failure;
        }
        // Should it be promoted again, it is another master.
        self.close();
        if !self.server.moves() {
            return failure;
        }
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "`{}` has become a replica: the sentinels of `{}` will name the new master",
                self.target, self.server
            ),
        ))
    }
}
