//! Renews leases, one by one or in batches, and watches for their loss.

use ::redis::Pipeline;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cluster::Route;
use super::node::Node;
use super::redis_store::RedisStore;
use super::reply;
use super::request::ScriptRequest;
use super::value::Value;
use crate::error::{Error, ErrorKind};
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
            let sent_at = self.clock.now();
            // `CLIENT CACHING` applies to the next command, so both are sent together.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            self.add_renewal(&mut pipeline, lease, true);
            let replies = connection.run_all(&pipeline, limit).await;
            let replies = replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
            match replies.get(1) {
                Some(reply @ Value::Array(_)) => return reply::renewal(reply, sent_at),
                // For example, the server does not know the script, or the lock has moved. Use the
                // normal way.
                Some(Value::Error(error)) => self.routes.note_error_reply(&node, error),
                _ => {}
            }
        }
        let mut keys = vec![lease.name.as_str().to_owned()];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let arguments = |_: &_, _| {
            let ttl_ms = lease.ttl.as_millis().to_string();
            vec![lease.id.as_str().to_owned(), ttl_ms, "0".to_owned()]
        };
        let request = ScriptRequest::for_lease(lease, &self.scripts().renew, &keys);
        let answer = self.run_script(&request, arguments, limit).await?;
        reply::renewal(&answer.reply, answer.sent_at)
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
        if first.replicas > 0 {
            return self.renew_all_confirmed(&leases, limit).await;
        }
        let node = self.route(&first.name)?.node;
        let limit = self.command_limit(limit);
        let replies = self.renew_batch_at(&node, &leases, watched, limit).await;
        replies.map_err(|failure| self.routes.note_failure(&node, failure))
    }

    async fn renew_batch_at(
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
        let mut pipeline = Pipeline::with_capacity(leases.len() * 2);
        for lease in leases {
            if tracked {
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            self.add_renewal(&mut pipeline, lease, tracked);
        }
        let sent_at = self.clock.now();
        let replies = connection.run_all(&pipeline, limit).await?;
        let replies = replies.chunks(if tracked { 2 } else { 1 });
        let read = |replies: &[Value]| match replies.last() {
            Some(reply @ Value::Array(_)) => reply::renewal(reply, sent_at).ok(),
            Some(Value::Error(error)) => {
                self.routes.note_error_reply(node, error);
                None
            }
            _ => None,
        };
        Ok(replies.map(read).collect())
    }

    /// Renews a lease and waits for replicas. Not on the tracking connection, which `WAIT` would
    /// block; that one gets an invalidation and checks the lease.
    async fn renew_confirmed(
        &self,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<RenewReply, Failure> {
        let mut route = self.route(&lease.name)?;
        loop {
            let answer = self.renew_confirmed_at(&route, lease, limit).await;
            let Err(failure) = answer else { return answer };
            route = self.next_route(&lease.name, route, failure, limit).await?;
        }
    }

    async fn renew_confirmed_at(
        &self,
        route: &Route,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<RenewReply, Failure> {
        let connection = route.node.renewal_connection(limit).await?;
        let mut keys = vec![lease.name.as_str().to_owned()];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let ttl_ms = lease.ttl.as_millis().to_string();
        let arguments = [lease.id.as_str(), &ttl_ms, "0"];
        let (renew, sent_at) = (&self.scripts().renew, self.clock.now());
        let answer_by = self.command_limit(limit);
        let reply = connection.script_routed(route.asking, renew, &keys, &arguments, answer_by, 0);
        let renewed = reply::renewal(&reply.await?, sent_at)?;
        if matches!(renewed, RenewReply::Until { .. }) {
            self.confirm(&connection, lease, 0, limit).await?;
        }
        Ok(renewed)
    }

    /// The same for several leases with the same number of replicas: one `WAIT` covers all.
    async fn renew_all_confirmed(
        &self,
        leases: &[&LeaseSpec],
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        let Some(first) = leases.first() else {
            return Ok(Vec::new());
        };
        let node = self.route(&first.name)?.node;
        let answers = self.renew_all_confirmed_at(&node, first, leases, limit);
        let answers = answers.await;
        answers.map_err(|failure| self.routes.note_failure(&node, failure))
    }

    async fn renew_all_confirmed_at(
        &self,
        node: &Arc<Node>,
        first: &LeaseSpec,
        leases: &[&LeaseSpec],
        limit: Moment,
    ) -> Result<Vec<Option<RenewReply>>, Failure> {
        let connection = node.renewal_connection(limit).await?;
        let mut pipeline = Pipeline::with_capacity(leases.len());
        for lease in leases {
            self.add_renewal(&mut pipeline, lease, false);
        }
        let sent_at = self.clock.now();
        let answer_by = self.command_limit(limit);
        let replies = connection.run_all(&pipeline, answer_by).await?;
        let confirmed = self.confirm(&connection, first, 0, limit).await;
        let failure = confirmed.err().map(Failure::from);
        let read = |reply: &Value| {
            if let Value::Error(error) = reply {
                self.routes.note_error_reply(node, error);
            }
            let renewed = reply::renewal(reply, sent_at).ok()?;
            Some(match (&failure, renewed) {
                (Some(failure), RenewReply::Until { .. }) => {
                    RenewReply::Unconfirmed(failure.share())
                }
                (_, renewed) => renewed,
            })
        };
        Ok(replies.iter().map(read).collect())
    }

    fn add_renewal(&self, pipeline: &mut Pipeline, lease: &LeaseSpec, tracked: bool) {
        let evalsha = pipeline.cmd("EVALSHA").arg(self.scripts().renew.hash());
        evalsha.arg(1 + usize::from(lease.has_meta));
        evalsha.arg(lease.name.as_str());
        if lease.has_meta {
            evalsha.arg(lease.name.neighbour("meta"));
        }
        let ttl_ms = u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX);
        evalsha.arg(lease.id.as_str()).arg(ttl_ms);
        evalsha.arg(u8::from(tracked));
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
                "the lock is on its way to another node",
            );
            return Err(Failure::not_sent(error));
        }
        let connection = route.node.listener.reconnector.connection(limit).await?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        self.layout.add_watch_commands(lease, &mut pipeline);
        let replies = connection.run_all(&pipeline, limit).await?;
        if let Some(Value::Error(error)) = replies.first() {
            self.warn_tracking_refused(&route.node, error);
        }
        let answers = replies.get(1..).unwrap_or_default();
        let watched = self.layout.read_watch_replies(lease, answers);
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
                "redis.tracking_refused: a forced release will be noticed at the next renewal only"
            );
        }
    }
}
