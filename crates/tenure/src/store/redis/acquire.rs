//! Acquires a lock: on the engine, or on the caller's own task.

use std::sync::Arc;

use super::connection::Connection;
use super::failover_pause::GrantPause;
use super::node::ScriptConnection;
use super::redis_store::RedisStore;
use super::reply;
use super::request::{ScriptReply, ScriptRequest};
use super::transaction::Transaction;
use crate::layout::Layout;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{AcquireReply, Attempt, CallerAcquire, Failure, RESPONSE_TIMEOUT};

impl RedisStore {
    pub(super) async fn try_acquire(
        &self,
        attempt: &Attempt,
        limit: Moment,
    ) -> Result<AcquireReply, Failure> {
        let name = &attempt.held.name;
        let arguments = |connection: &Connection, latest_us| {
            acquire_arguments(attempt, latest_us, self.primary_argument(connection))
        };
        let read = |answer: &ScriptReply| reply::attempt(self.layout, name, answer);
        let keys = acquire_keys(self.layout, attempt);
        let pause = GrantPause::default();
        let request = ScriptRequest::for_lease(&attempt.held, &self.scripts().acquire, &keys);
        let request = request.granting(&pause);
        let (attempted, answer) = match self
            .run_before_deadline(&request, arguments, read, limit)
            .await
        {
            Ok(answered) => answered,
            Err(failure) => return pause.take().map(AcquireReply::NotYet).ok_or(failure),
        };
        if !matches!(attempted, AcquireReply::Granted { .. }) {
            return Ok(attempted);
        }
        let (connection, latest_us) = (&answer.connection, answer.latest_us);
        self.confirm_grant(connection, &attempt.held, attempted, latest_us, limit)
            .await
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
        let primary = self.granting_primary(&connection)?;
        if self.can_use_transaction(&connection)
            && connection
                .transaction_candidates()
                .includes(attempt, self.clock.now())
        {
            let transaction = Transaction::new(&connection, attempt);
            let in_flight = transaction.in_flight;
            let asking = async move {
                let attempted = transaction.run(&connection, attempt).await;
                attempted.map_err(|failure| self.routes.note_failure(&node, failure))
            };
            return Some((Some(in_flight), Box::pin(asking)));
        }
        let latest_us = connection.server_us(self.clock.now() + RESPONSE_TIMEOUT);
        let in_flight = connection.in_flight(latest_us);
        let asking = async move {
            let attempted =
                self.acquire_by_script_on_caller(connection, attempt, latest_us, primary);
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
        primary: String,
    ) -> Result<AcquireReply, Failure> {
        let sent_at = self.clock.now();
        let keys = acquire_keys(self.layout, attempt);
        let arguments = acquire_arguments(attempt, latest_us, primary);
        let reply = connection
            .script_on_caller(&self.scripts().acquire, &keys, &arguments, latest_us)
            .await?;
        let answer = ScriptReply {
            reply,
            sent_at: self.sent_at(sent_at),
            latest_us,
            connection: ScriptConnection::Shared(connection),
        };
        let name = &attempt.held.name;
        let attempted = reply::attempt(self.layout, name, &answer)?.map_err(|rejection| {
            // The engine retries.
            answer.learn_from(rejection);
            answer.connection.too_late()
        })?;
        let clock_us = answer.connection.server_us(self.clock.now());
        let known = answer.connection.transaction_candidates();
        known.note(name, &attempted, sent_at, clock_us);
        Ok(attempted)
    }

    /// Whether a transaction may acquire the lock. It cannot compare the primary, and in a cluster
    /// a node may redirect in the middle of it.
    fn can_use_transaction(&self, connection: &Connection) -> bool {
        self.layout == Layout::Native
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

/// The keys of acquire.lua, all in one slot. Most attempts need two of them.
fn acquire_keys(layout: Layout, attempt: &Attempt) -> Vec<String> {
    let name = &attempt.held.name;
    let mut keys = vec![name.as_str().to_owned(), layout.counter_key(name)];
    if attempt.queue || attempt.held.has_meta {
        keys.extend([name.neighbour("queue"), name.neighbour("alive")]);
    }
    if attempt.held.has_meta {
        keys.push(name.neighbour("meta"));
    }
    keys
}

fn acquire_arguments(attempt: &Attempt, latest_us: u64, primary: String) -> Vec<String> {
    let mut arguments = vec![
        attempt.held.id.as_str().to_owned(),
        attempt.held.ttl.as_millis().to_string(),
        latest_us.to_string(),
        attempt.fences.to_string(),
    ];
    let has_master = !primary.is_empty();
    if attempt.queue || attempt.held.has_meta || has_master {
        arguments.push(if attempt.queue { "queue" } else { "" }.to_owned());
    }
    if attempt.held.has_meta || has_master {
        arguments.push(primary);
    }
    for (field, value) in attempt.meta.iter() {
        arguments.extend([field.clone(), value.clone()]);
    }
    arguments
}
