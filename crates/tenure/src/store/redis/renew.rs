//! Renews leases, one by one or in batches, and watches for their loss.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arguments::Arguments;
use super::cluster::Route;
use super::command::Pipeline;
use super::connection::{Connection, SendOptions};
use super::node::Node;
use super::operation::{Operation, Renew};
use super::redis_store::RedisStore;
use super::routes::Routes;
use super::script::RENEW_ALL;
use super::script_call::ScriptCall;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::store::{Failure, LeaseSpec, RenewReply, WatchReply};

impl RedisStore {
    pub(super) async fn try_renew(
        &self,
        lease: &LeaseSpec,
        watched: bool,
        limit: Moment,
    ) -> Result<RenewReply, Failure> {
        if lease.replicas > 0 {
            return self.renew_confirmed(lease, limit).await;
        }
        let limit = self.command_limit(limit);
        let node = self.route(&lease.name)?.node;
        if let Some(connection) = node.tracking(watched) {
            let leases = [lease];
            let renewed = self.renew_batch_on(&node, &connection, &leases, true, limit);
            let renewed = renewed.await;
            let renewed = renewed.map_err(|failure| self.routes.note_failure(&node, failure))?;
            if let Some(renewed) = renewed.into_iter().flatten().next() {
                return Ok(renewed);
            }
            // For example, the server does not know the script, or the lock has moved. Use the
            // normal way.
        }
        let renew = Renew {
            lease,
            tracked: false,
        };
        Ok(self.perform(&renew, limit).await?.reply)
    }

    /// Renews several leases in one batch, all on the node of the first. An error for one tells
    /// nothing about the others.
    pub(super) async fn try_renew_all(
        &self,
        leases: Vec<&LeaseSpec>,
        watched: bool,
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        let Some(first) = leases.first() else {
            return Ok(Vec::new());
        };
        let node = self.route(&first.name)?.node;
        let renewed = if first.replicas > 0 {
            self.renew_batch_confirmed(&node, first, &leases, limit)
                .await
        } else {
            let limit = self.command_limit(limit);
            self.renew_batch(&node, &leases, watched, limit).await
        };
        renewed.map_err(|failure| self.routes.note_failure(&node, failure))
    }

    async fn renew_batch(
        &self,
        node: &Arc<Node>,
        leases: &[&LeaseSpec],
        watched: bool,
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        let tracking = node.tracking(watched);
        let tracked = tracking.is_some();
        let connection = match tracking {
            Some(connection) => connection,
            None => node.commands.connection(limit).await?,
        };
        self.renew_batch_on(node, &connection, leases, tracked, limit)
            .await
    }

    /// Renews a lease and waits for replicas. Not on the tracking connection, which `WAIT` would
    /// block; that one gets an invalidation and checks the lease.
    async fn renew_confirmed(
        &self,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<RenewReply, Failure> {
        let renew = Renew {
            lease,
            tracked: false,
        };
        let performed = self.perform(&renew, limit).await?;
        if matches!(performed.reply, RenewReply::Until { .. }) {
            self.confirm(&performed.connection, lease, 0, limit).await?;
        }
        Ok(performed.reply)
    }

    /// The same for several leases with the same number of replicas: one `WAIT` covers all.
    async fn renew_batch_confirmed(
        &self,
        node: &Arc<Node>,
        first: &LeaseSpec,
        leases: &[&LeaseSpec],
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        let connection = node.renewal_connection(limit).await?;
        let answer_by = self.command_limit(limit);
        let renewed = self.renew_batch_on(node, &connection, leases, false, answer_by);
        let mut renewed = renewed.await?;
        if let Err(unconfirmed) = self.confirm(&connection, first, 0, limit).await {
            let failure = Failure::from(unconfirmed);
            for renewed in renewed.iter_mut().flatten() {
                if matches!(renewed, RenewReply::Until { .. }) {
                    *renewed = RenewReply::Unconfirmed(failure.share());
                }
            }
        }
        Ok(renewed)
    }

    /// Renews leases in one batch on this connection; `None` for those that got an error.
    async fn renew_batch_on(
        &self,
        node: &Arc<Node>,
        connection: &Connection,
        leases: &[&LeaseSpec],
        tracked: bool,
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        if self.can_renew_together(leases)
            && let Some(renewed) = self
                .renew_together(connection, leases, tracked, limit)
                .await?
        {
            return Ok(renewed);
        }
        self.renew_one_by_one(node, connection, leases, tracked, limit)
            .await
    }

    /// Whether `renew_all.lua` does what `renew.lua` would do. Keys of a cluster cannot be renewed together,
    /// because they are in different slots.
    fn can_renew_together(&self, leases: &[&LeaseSpec]) -> bool {
        let first = leases.first().filter(|_| leases.len() > 1);
        let is_alike = |ttl| {
            leases
                .iter()
                .all(|lease| lease.ttl == ttl && !lease.has_meta && lease.mode == Mode::Exclusive)
        };
        self.keys.layout == Layout::Native
            && matches!(self.routes, Routes::One(_))
            && first.is_some_and(|first| is_alike(first.ttl))
    }

    /// Renews leases with one script; `None` for those that renew.lua must look at. The outer `None` if
    /// the server refuses the script, and changed nothing.
    async fn renew_together(
        &self,
        connection: &Connection,
        leases: &[&LeaseSpec],
        tracked: bool,
        limit: Moment,
    ) -> Result<Option<Vec<Option<RenewReply>>>, Failure> {
        let ttl = leases.first().map_or(0, |lease| lease.ttl.as_millis());
        let ttl = ttl.to_string();
        let keys = leases.iter().map(|lease| self.keys.lock(&lease.name));
        let keys = keys.collect();
        let mut arguments = Arguments::new();
        for lease in leases {
            arguments.push(lease.id.as_str());
        }
        arguments.push(&ttl).push(if tracked { "1" } else { "0" });
        let call = ScriptCall::with(&RENEW_ALL, keys, arguments);
        let sent_at = self.clock.now();
        let options = SendOptions::until(limit);
        let mut reply = Value::Nil;
        for command in [ScriptCall::by_hash, ScriptCall::by_text] {
            let mut pipeline = Pipeline::with_capacity(2);
            if tracked {
                // It applies to the next command.
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            pipeline.add_command(command(&call));
            let mut replies = connection.run_all(&pipeline, options).await?;
            reply = replies.pop().unwrap_or(Value::Nil);
            if !reply.error().is_some_and(|it| it.starts_with("NOSCRIPT")) {
                break;
            }
        }
        let Some(results) = reply.as_array().filter(|_| reply.error().is_none()) else {
            return Ok(None);
        };
        let sent_at = self.reply(Value::Nil, sent_at).sent_at;
        let read = |at: usize| {
            let renewed = results.get(at).and_then(Value::as_int) == Some(1);
            renewed.then_some(RenewReply::Until { sent_at })
        };
        Ok(Some((0..leases.len()).map(read).collect()))
    }

    async fn renew_one_by_one(
        &self,
        node: &Arc<Node>,
        connection: &Connection,
        leases: &[&LeaseSpec],
        tracked: bool,
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        let operations = leases.iter().map(|lease| Renew { lease, tracked });
        let mut pipeline = Pipeline::with_capacity(leases.len() * 2);
        for renew in operations.clone() {
            if tracked {
                // It applies to the next command.
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            pipeline.add_command(self.plain_call(&renew).by_hash());
        }
        let sent_at = self.clock.now();
        let options = SendOptions::until(limit);
        let mut replies = connection.run_all(&pipeline, options).await?.into_iter();
        let read = |renew: Renew<'_>| {
            if tracked {
                replies.next();
            }
            match replies.next()? {
                Value::Error(error) => {
                    self.routes.note_error_reply(node, &error);
                    None
                }
                value => renew.read(&self.reply(value, sent_at)).ok()?.ok(),
            }
        };
        Ok(operations.map(read).collect())
    }

    pub(super) async fn try_watch(
        &self,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<WatchReply, Failure> {
        let limit = self.command_limit(limit);
        let mut route = self.route(&lease.name)?;
        loop {
            let answer = self.watch_at(&route, lease, limit).await;
            let Err(failure) = answer else { return answer };
            route = self.next_route(&lease.name, route, failure, limit).await?;
        }
    }

    async fn watch_at(
        &self,
        route: &Route,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<WatchReply, Failure> {
        if route.asking {
            // `ASKING` and `CLIENT CACHING` cannot both apply to one command. The lease is checked
            // again soon, and its slot has arrived by then.
            let error = Error::new(
                ErrorKind::Unavailable,
                "the lock is being moved to another node",
            );
            return Err(Failure::not_sent(error));
        }
        let connection = route.node.listener.reconnector.connection(limit).await?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        let key = self.keys.lock(&lease.name);
        self.keys
            .layout
            .add_watch_commands(&key, &lease.id, &mut pipeline);
        let options = SendOptions::until(limit);
        let replies = connection.run_all(&pipeline, options).await?;
        if let Some(Value::Error(error)) = replies.first() {
            self.warn_tracking_refused(&route.node, error);
        }
        let answers = replies.get(1..).unwrap_or_default();
        let watched = self.keys.layout.read_watch_replies(lease, answers);
        watched.map_err(|error| {
            let failure = Error::new(ErrorKind::Unavailable, error.clone());
            Failure::not_sent(failure.caused_by(error))
        })
    }

    /// Warns once that leases cannot be watched: the server refused tracking or `CLIENT CACHING`.
    fn warn_tracking_refused(&self, node: &Node, error: &str) {
        if !self.tracking_warned.swap(true, Ordering::Relaxed) {
            self.stats.tracking_refused();
            tracing::warn!(
                server = %node.server, error,
                "redis.tracking_refused: a forced release will only be noticed at the next renewal"
            );
        }
    }
}
