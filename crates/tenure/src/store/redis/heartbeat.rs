//! Heartbeats of waiters, and the live waiters of a lock.

use std::sync::Arc;

use ::redis::Pipeline;

use super::node::Node;
use super::redis_store::RedisStore;
use super::request::ScriptRequest;
use super::script::{STAY, Script, WAITERS};
use super::value::Value;
use crate::error::ErrorKind;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, QueuedWaiter};

/// How many locks go into one batch: few enough that other clients do not wait long.
const BATCH: usize = 250;

impl RedisStore {
    /// All on the node of the first, in batches. A waiter that gets an error there is sent on its
    /// own.
    pub(super) async fn try_heartbeat(
        &self,
        waiters: &[QueuedWaiter],
        limit: Moment,
    ) -> Result<Vec<Option<bool>>, Failure> {
        let mut answers = Vec::with_capacity(waiters.len());
        let Some(first) = waiters.first() else {
            return Ok(answers);
        };
        let node = self.route(&first.name)?.node;
        for batch in waiters.chunks(BATCH) {
            let requests: Vec<_> = batch.iter().map(heartbeat_request).collect();
            let replies = self.run_batch(&node, &STAY, &requests, limit).await;
            let replies = replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
            for (waiter, reply) in batch.iter().zip(replies) {
                let reply = match reply {
                    Value::Error(error) => {
                        // The lock has moved, or its slot is migrating.
                        self.routes.note_error_reply(&node, &error);
                        self.heartbeat_alone(waiter, limit).await?
                    }
                    reply => reply,
                };
                answers.push(reply.as_int().map(|stands| stands == 1));
            }
        }
        Ok(answers)
    }

    async fn heartbeat_alone(
        &self,
        waiter: &QueuedWaiter,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let (keys, lease) = heartbeat_request(waiter);
        self.run_alone(&waiter.name, &STAY, &keys, &lease, limit)
            .await
    }

    pub(super) async fn try_waiters(
        &self,
        names: &[LockName],
        limit: Moment,
    ) -> Result<Vec<Option<Vec<LeaseId>>>, Failure> {
        let mut waiters: Vec<Option<Vec<LeaseId>>> = vec![None; names.len()];
        for (node, indexes) in self.group_by_node(names, &mut []) {
            for batch in indexes.chunks(BATCH) {
                let requests = batch.iter().map(|index| queue_keys(&names[*index]));
                let requests: Vec<_> = requests.map(|keys| (keys, [])).collect();
                let replies = self.run_batch(&node, &WAITERS, &requests, limit).await;
                let replies =
                    replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
                for (index, reply) in batch.iter().zip(replies) {
                    waiters[*index] = match reply {
                        Value::Error(error) => {
                            self.routes.note_error_reply(&node, &error);
                            self.waiters_alone(&names[*index], limit).await?
                        }
                        reply => ids(&reply),
                    };
                }
            }
        }
        Ok(waiters)
    }

    async fn waiters_alone(
        &self,
        name: &LockName,
        limit: Moment,
    ) -> Result<Option<Vec<LeaseId>>, Failure> {
        let keys = queue_keys(name);
        match self.run_alone(name, &WAITERS, &keys, &[], limit).await {
            Ok(reply) => Ok(ids(&reply)),
            // A user without access to this lock may have access to others.
            Err(failure) if failure.error.kind() == ErrorKind::Denied => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Runs a script on the node that has the lock.
    async fn run_alone(
        &self,
        name: &LockName,
        script: &Script,
        keys: &[String],
        arguments: &[String],
        limit: Moment,
    ) -> Result<Value, Failure> {
        let request = ScriptRequest {
            name,
            replicas: 0,
            grants: None,
            script,
            keys,
        };
        let answer = self
            .run_script(&request, |_, _| arguments.to_vec(), limit)
            .await?;
        Ok(answer.reply)
    }

    /// Runs a script several times on one node, in one batch. A node that does not know the script
    /// gets its text.
    async fn run_batch<const N: usize>(
        &self,
        node: &Arc<Node>,
        script: &Script,
        requests: &[([String; 2], [String; N])],
        limit: Moment,
    ) -> Result<Vec<Value>, Failure> {
        let limit = self.command_limit(limit);
        let connection = node.commands.connection(limit).await?;
        let by = |text: bool| {
            let mut pipeline = Pipeline::with_capacity(requests.len());
            for (at, (keys, arguments)) in requests.iter().enumerate() {
                let command = if text && at == 0 {
                    pipeline.cmd("EVAL").arg(script.code())
                } else {
                    pipeline.cmd("EVALSHA").arg(script.hash())
                };
                command.arg(keys.len()).arg(keys).arg(arguments);
            }
            pipeline
        };
        let replies = connection.run_all(&by(false), limit).await?;
        let unknown =
            |reply: &Value| matches!(reply, Value::Error(it) if it.starts_with("NOSCRIPT"));
        if replies.iter().any(unknown) {
            return connection.run_all(&by(true), limit).await;
        }
        Ok(replies)
    }
}

fn heartbeat_request(waiter: &QueuedWaiter) -> ([String; 2], [String; 1]) {
    (queue_keys(&waiter.name), [waiter.id.as_str().to_owned()])
}

fn queue_keys(name: &LockName) -> [String; 2] {
    ["queue", "alive"].map(|role| name.neighbour(role))
}

fn ids(reply: &Value) -> Option<Vec<LeaseId>> {
    let ids = reply.as_array()?.iter();
    Some(ids.filter_map(Value::lossy).map(LeaseId::new).collect())
}
