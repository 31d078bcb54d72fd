//! Keeping leases: renewals, one by one or in batches, and watching for their loss.

use ::redis::Pipeline;
use std::sync::atomic::Ordering;

use super::node::Node;
use super::value::Value;
use super::{Question, RedisStore, reply};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::{Failure, Held, Renewed, Watched};

impl RedisStore {
    pub(super) async fn try_renew(
        &self,
        lease: &Held,
        watched: bool,
        limit: Moment,
    ) -> Result<Renewed, Failure> {
        if lease.replicas > 0 {
            return self.renew_confirmed(lease, limit).await;
        }
        let limit = self.command_limit(limit);
        let node = self.routes.node(&lease.name)?;
        let (connection, tracked) = node.renewing(watched, limit).await?;
        let mut keys = vec![lease.name.as_str().to_owned()];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        if tracked {
            let sent_at = self.clock.now();
            // `CLIENT CACHING` is about the command that follows it: both go out in one piece.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            self.add_renewal(&mut pipeline, lease, tracked);
            let replies = connection.run_all(&pipeline, limit).await?;
            // Anything else: the script is not known there, for example. Ask the plain way.
            if let Some(reply @ Value::Array(_)) = replies.get(1) {
                return reply::renewal(reply, sent_at);
            }
        }
        let arguments = |_: &_, _| {
            let ttl_ms = lease.ttl.as_millis().to_string();
            vec![lease.id.as_str().to_owned(), ttl_ms, "0".to_owned()]
        };
        let question = Question::about(lease, &self.scripts().renew, &keys);
        let answer = self.ask(&question, arguments, limit).await?;
        reply::renewal(&answer.reply, answer.sent_at)
    }

    /// Renews several leases in one piece. An answer that is none says nothing of the others.
    pub(super) async fn try_renew_all(
        &self,
        leases: Vec<&Held>,
        watched: bool,
        limit: Moment,
    ) -> Result<Vec<Option<Renewed>>, Failure> {
        let Some(first) = leases.first() else {
            return Ok(Vec::new());
        };
        if first.replicas > 0 {
            return self.renew_all_confirmed(&leases, limit).await;
        }
        let node = self.routes.node(&first.name)?;
        let limit = self.command_limit(limit);
        let (connection, tracked) = node.renewing(watched, limit).await?;
        let mut pipeline = Pipeline::with_capacity(leases.len() * 2);
        for lease in &leases {
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
            _ => None,
        };
        Ok(replies.map(read).collect())
    }

    /// Renews a lease, and lets replicas confirm it. Not on the connection that tracks, which `WAIT`
    /// would block; that one takes it for news, and looks.
    async fn renew_confirmed(&self, lease: &Held, limit: Moment) -> Result<Renewed, Failure> {
        let node = self.routes.node(&lease.name)?;
        let connection = node.keeping(limit).await?;
        let mut keys = vec![lease.name.as_str().to_owned()];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let ttl_ms = lease.ttl.as_millis().to_string();
        let arguments = [lease.id.as_str(), &ttl_ms, "0"];
        let (renew, sent_at) = (&self.scripts().renew, self.clock.now());
        let answer_by = self.command_limit(limit);
        let reply = connection.script(renew, &keys, &arguments, answer_by, 0);
        let renewed = reply::renewal(&reply.await?, sent_at)?;
        if matches!(renewed, Renewed::Until { .. }) {
            self.confirm(&connection, lease, 0, limit).await?;
        }
        Ok(renewed)
    }

    /// The same for several, which as many replicas must confirm: those are asked once for all.
    async fn renew_all_confirmed(
        &self,
        leases: &[&Held],
        limit: Moment,
    ) -> Result<Vec<Option<Renewed>>, Failure> {
        let Some(first) = leases.first() else {
            return Ok(Vec::new());
        };
        let node = self.routes.node(&first.name)?;
        let connection = node.keeping(limit).await?;
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
            let renewed = reply::renewal(reply, sent_at).ok()?;
            Some(match (&failure, renewed) {
                (Some(failure), Renewed::Until { .. }) => Renewed::Unconfirmed(failure.share()),
                (_, renewed) => renewed,
            })
        };
        Ok(replies.iter().map(read).collect())
    }

    fn add_renewal(&self, pipeline: &mut Pipeline, lease: &Held, tracked: bool) {
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

    pub(super) async fn try_watch(&self, lease: &Held, limit: Moment) -> Result<Watched, Failure> {
        let limit = self.command_limit(limit);
        let node = self.routes.node(&lease.name)?;
        let connection = node.listener.link.connection(limit).await?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        self.layout.ask_for(lease, &mut pipeline);
        let replies = connection.run_all(&pipeline, limit).await?;
        if let Some(Value::Error(error)) = replies.first() {
            self.tell_of_tracking(&node, error);
        }
        let answers = replies.get(1..).unwrap_or_default();
        let watched = self.layout.read_answers(lease, answers);
        watched.map_err(|error| Failure::not_sent(Error::new(ErrorKind::Unavailable, error)))
    }

    /// Says once that leases cannot be watched: tracking itself was refused, or `CLIENT CACHING`.
    fn tell_of_tracking(&self, node: &Node, error: &str) {
        if !self.told_of_tracking.swap(true, Ordering::Relaxed) {
            self.stats.tracking_refused();
            tracing::warn!(
                server = %node.server, error,
                "redis.tracking_refused: a forced release will be noticed at the next renewal only"
            );
        }
    }
}
