//! Performs operations: on the node that has the lock, or on a given connection.

use std::sync::Arc;

use super::cluster::Route;
use super::command::Pipeline;
use super::connection::{Connection, SendOptions};
use super::node::{Node, ScriptConnection};
use super::operation::{Operation, Rejection, ScriptReply, ServerContext};
use super::redis_store::RedisStore;
use super::script_call::{self, ScriptCall};
use super::value::Value;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{Failure, NotYet};

/// How often an operation may be rejected as late, or by another primary, before it fails.
const REJECTIONS_MAX: usize = 3;

/// The result of an operation, and the connection on which it ran.
pub(super) struct Performed<T> {
    pub(super) reply: T,
    pub(super) connection: ScriptConnection,
    /// The latest moment by the server's clock that it carried.
    pub(super) latest_us: u64,
}

/// Why an operation was not performed.
pub(super) enum Unperformed {
    /// The primary is in its failover pause and grants no lock yet.
    Paused(NotYet),
    Failed(Failure),
}

impl From<Failure> for Unperformed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Unperformed> for Failure {
    fn from(unperformed: Unperformed) -> Self {
        match unperformed {
            Unperformed::Paused(not_yet) => Self::not_sent(not_yet.error),
            Unperformed::Failed(failure) => failure,
        }
    }
}

impl RedisStore {
    /// Performs an operation on the node that has the lock. An operation that ran too late, or on
    /// another primary, changed nothing and is retried.
    pub(super) async fn perform<O: Operation>(
        &self,
        operation: &O,
        limit: Moment,
    ) -> Result<Performed<O::Reply>, Unperformed> {
        let mut route = self.route(operation.name())?;
        let mut rejections = 0;
        loop {
            match self.perform_at(&route, operation, limit).await {
                Ok(performed) => {
                    let Performed {
                        reply,
                        connection,
                        latest_us,
                    } = performed;
                    let rejection = match reply {
                        Ok(reply) => {
                            return Ok(Performed {
                                reply,
                                connection,
                                latest_us,
                            });
                        }
                        Err(rejection) => rejection,
                    };
                    rejections += 1;
                    self.check_rejections(rejection, rejections, &connection, limit)?;
                }
                Err(Unperformed::Failed(failure)) => {
                    let name = operation.name();
                    route = self.next_route(name, route, failure, limit).await?;
                }
                Err(paused) => return Err(paused),
            }
        }
    }

    /// Performs an operation from the caller's own task. If it is rejected, the engine retries.
    pub(super) async fn perform_on_caller<O: Operation>(
        &self,
        connection: &Connection,
        operation: &O,
        latest_us: u64,
    ) -> Result<O::Reply, Failure> {
        let options = SendOptions::on_caller().latest(latest_us);
        let reply = self.perform_on(connection, operation, options).await?;
        reply.map_err(|_| connection.too_late())
    }

    /// Performs an operation on this connection. Learns from a rejection, so that the next attempt
    /// can succeed.
    pub(super) async fn perform_on<O: Operation>(
        &self,
        connection: &Connection,
        operation: &O,
        options: SendOptions,
    ) -> Result<Result<O::Reply, Rejection>, Failure> {
        let primary = self.primary_argument(connection);
        let call = operation.call(&self.context(options.latest_us, primary));
        let sent_at = self.clock.now();
        let value = connection.script(&call, options).await?;
        let reply = operation.read(&self.reply(value, sent_at))?;
        match reply {
            // The server's clock was set forward since we read it.
            Err(Rejection::Late(server_us)) => connection.set_clock(sent_at, server_us),
            Err(Rejection::OtherPrimary) => connection.trusted_primary().forget(),
            Ok(_) => {}
        }
        Ok(reply)
    }

    /// Sends several operations to one node in one batch. Operations of a kind use one script: a
    /// node that does not know it gets its text.
    pub(super) async fn perform_batch<O: Operation>(
        &self,
        node: &Arc<Node>,
        operations: &[O],
        limit: Moment,
    ) -> Result<Vec<BatchReply<O::Reply>>, Failure> {
        let limit = self.command_limit(limit);
        let connection = node.commands.connection(limit).await?;
        let options = SendOptions::until(limit);
        let sent_at = self.clock.now();
        let mut replies = connection
            .run_all(&self.batch(operations, false), options)
            .await?;
        let is_unknown =
            |reply: &Value| matches!(reply, Value::Error(it) if it.starts_with("NOSCRIPT"));
        if replies.iter().any(is_unknown) {
            let by_text = self.batch(operations, true);
            replies = connection.run_all(&by_text, options).await?;
        }
        let read = |(operation, value): (&O, Value)| match value {
            Value::Error(error) => {
                // The lock has moved, or its slot is migrating, or this one is forbidden.
                self.routes.note_error_reply(node, &error);
                BatchReply::Alone
            }
            value => match operation.read(&self.reply(value, sent_at)) {
                Ok(Ok(reply)) => BatchReply::Reply(reply),
                Ok(Err(_)) => BatchReply::Alone,
                Err(failure) => BatchReply::Failed(failure),
            },
        };
        Ok(operations.iter().zip(replies).map(read).collect())
    }

    /// The call of an operation that carries neither a latest moment nor a primary.
    pub(super) fn plain_call(&self, operation: &impl Operation) -> ScriptCall<'static> {
        operation.call(&self.context(0, String::new()))
    }

    pub(super) fn reply(&self, value: Value, sent_at: Moment) -> ScriptReply {
        ScriptReply {
            layout: self.keys.layout,
            value,
            sent_at: if bug(Bug::DeadlineFromReply) {
                self.clock.now()
            } else {
                sent_at
            },
        }
    }

    async fn perform_at<O: Operation>(
        &self,
        route: &Route,
        operation: &O,
        limit: Moment,
    ) -> Result<Performed<Result<O::Reply, Rejection>>, Unperformed> {
        let node = &route.node;
        let connection = match (operation.replicas(), operation.renews()) {
            (0, _) => ScriptConnection::Shared(node.commands.connection(limit).await?),
            (_, true) => ScriptConnection::Dedicated(node.renewal_connection(limit).await?),
            (_, false) => ScriptConnection::Dedicated(node.grant_connection(limit).await?),
        };
        if operation.grants() {
            self.check_failover_pause(operation.name(), node, &connection, limit)
                .await?;
        }
        let limit = self.command_limit(limit);
        let latest_us = connection.server_us(limit);
        let options = SendOptions::until(limit).latest(latest_us);
        let options = options.asking(route.asking);
        let reply = self.perform_on(&connection, operation, options).await?;
        Ok(Performed {
            reply,
            connection,
            latest_us,
        })
    }

    /// Fails if the operation was rejected too often, or if there is no time for another try.
    fn check_rejections(
        &self,
        rejection: Rejection,
        rejections: usize,
        connection: &Connection,
        limit: Moment,
    ) -> Result<(), Failure> {
        if self.clock.now() >= limit {
            return Err(connection.too_late());
        }
        match rejection {
            _ if rejections < REJECTIONS_MAX => Ok(()),
            Rejection::Late(_) => Err(connection.clock_runs_away()),
            Rejection::OtherPrimary => Err(connection.primaries_change()),
        }
    }

    fn batch(&self, operations: &[impl Operation], text: bool) -> Pipeline {
        let calls = operations
            .iter()
            .map(|operation| self.plain_call(operation));
        script_call::batch(calls, text)
    }

    fn context(&self, latest_us: u64, primary: String) -> ServerContext {
        ServerContext {
            keys: self.keys.clone(),
            sharded: self.sharded,
            shares_counter: self.routes.shares_counter(),
            latest_us,
            primary,
        }
    }
}

/// The reply to one operation of a batch.
pub(super) enum BatchReply<T> {
    Reply(T),
    Failed(Failure),
    /// It was not performed: perform it on its own.
    Alone,
}
