//! Acquires a lock: on the engine, or on the caller's own task.

use std::sync::Arc;

use super::acquire_batch::TransactionAttempt;
use super::connection::Connection;
use super::fence_counter::FenceCounter;
use super::operation::{Acquire, Operation};
use super::perform::Unperformed;
use super::redis_store::RedisStore;
use super::routes::Routes;
use crate::layout::Layout;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
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
        let counter = self.transaction_counter(&connection, &attempt.held.name);
        if let Some(counter) = counter
            && connection
                .transaction_candidates()
                .includes(attempt, counter, self.clock.now())
        {
            let transaction = TransactionAttempt::new(&connection, attempt, counter);
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
        let counter = self.transaction_counter(&connection, acquire.name());
        if let Some(counter) = counter
            && attempt.held.mode == Mode::Exclusive
            && attempt.wish == Wish::Lock
        {
            let clock_us = connection.server_us(self.clock.now());
            let known = connection.transaction_candidates();
            known.note(acquire.name(), counter, &attempted, sent_at, clock_us);
        }
        Ok(attempted)
    }

    /// The counter of the fence, if a transaction may acquire the lock: it cannot compare the primary.
    fn transaction_counter(
        &self,
        connection: &Connection,
        name: &LockName,
    ) -> Option<FenceCounter> {
        if self.pauses_after_failover() || bug(Bug::FenceFromOldCopy) {
            return None;
        }
        self.combining_counter(connection, name)
    }

    /// The counter that mints the fences of this lock, if its requests may travel with others.
    pub(super) fn combining_counter(
        &self,
        connection: &Connection,
        name: &LockName,
    ) -> Option<FenceCounter> {
        match &self.routes {
            Routes::One(_) => connection.shares_counter().then_some(FenceCounter::Shared),
            Routes::Cluster(_) => (self.keys.layout == Layout::Native)
                .then(|| FenceCounter::of_each(&self.keys.lock(name))),
        }
    }

    /// The only primary that may grant, as the scripts expect it. A value that no server has, if no
    /// primary is trusted yet.
    pub(super) fn primary_argument(&self, connection: &Connection) -> String {
        let primary = self.granting_primary(connection);
        primary.unwrap_or_else(|| "unknown".to_owned())
    }
}
