//! Acquires a lock: on the engine, or on the caller's own task.

use std::sync::Arc;

use super::acquire_batch::TransactionAttempt;
use super::connection::Connection;
use super::operation::{Acquire, Operation};
use super::perform::Unperformed;
use super::redis_store::RedisStore;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{AcquireReply, Attempt, CallerAcquire, Failure, Wish};

impl RedisStore {
    pub(super) async fn try_acquire(
        &self,
        attempt: &Attempt,
        limit: Moment,
    ) -> Result<AcquireReply, Failure> {
        let performed = match self.perform(&Acquire(attempt), limit).await {
            Ok(performed) => performed,
            Err(Unperformed::Paused(not_yet)) => return Ok(AcquireReply::NotYet(not_yet)),
            Err(Unperformed::Failed(failure)) => return Err(failure),
        };
        if !matches!(performed.reply, AcquireReply::Granted { .. }) {
            return Ok(performed.reply);
        }
        let leases = [&attempt.held];
        let confirmed = self.confirm_grant(performed, &leases, limit).await?;
        Ok(confirmed.unwrap_or_else(AcquireReply::NotYet))
    }

    /// The same on the caller's own task, if a connection is ready.
    pub(super) fn try_acquire_on_caller<'a>(
        &'a self,
        attempt: &'a Attempt,
    ) -> Option<CallerAcquire<'a>> {
        if attempt.held.replicas > 0 {
            // The caller's connection is shared, and `WAIT` would block it.
            return None;
        }
        let node = self.route(&attempt.held.name).ok()?.node;
        let connection = node.caller_connection()?;
        self.granting_primary(&connection)?;
        if self.can_use_transaction(&connection)
            && connection
                .transaction_candidates()
                .includes(attempt, self.clock.now())
        {
            let transaction = TransactionAttempt::new(&connection, attempt);
            let in_flight = transaction.in_flight;
            let asking = async move {
                let attempted = transaction.run(&connection).await;
                attempted.map_err(|failure| self.routes.note_failure(&node, failure))
            };
            return Some((Some(in_flight), Box::pin(asking)));
        }
        let latest_us = connection.server_us(self.clock.now() + self.response_timeout);
        let in_flight = connection.in_flight(latest_us);
        let asking = async move {
            let attempted = self.acquire_by_script_on_caller(connection, attempt, latest_us);
            let attempted = attempted.await;
            attempted.map_err(|failure| self.routes.note_failure(&node, failure))
        };
        Some((Some(in_flight), Box::pin(asking)))
    }

    async fn acquire_by_script_on_caller(
        &self,
        connection: Arc<Connection>,
        attempt: &Attempt,
        latest_us: u64,
    ) -> Result<AcquireReply, Failure> {
        let (acquire, sent_at) = (Acquire(attempt), self.clock.now());
        let attempted = self.perform_on_caller(&connection, &acquire, latest_us);
        let attempted = attempted.await?;
        if attempt.held.mode == Mode::Exclusive && attempt.wish == Wish::Lock {
            let clock_us = connection.server_us(self.clock.now());
            let known = connection.transaction_candidates();
            known.note(acquire.name(), &attempted, sent_at, clock_us);
        }
        Ok(attempted)
    }

    /// Whether a transaction may acquire the lock. It cannot compare the primary, and in a cluster
    /// a node may redirect in the middle of it.
    fn can_use_transaction(&self, connection: &Connection) -> bool {
        connection.shares_counter()
            && !self.pauses_after_failover()
            && !connection.is_replaceable()
            && !bug(Bug::FenceFromOldCopy)
    }

    /// The only primary that may grant, as the scripts expect it. A value that no server has, if no
    /// primary is trusted yet.
    pub(super) fn primary_argument(&self, connection: &Connection) -> String {
        let primary = self.granting_primary(connection);
        primary.unwrap_or_else(|| "unknown".to_owned())
    }
}
