//! Inspects locks without acquiring them: one by one, or in batches.

use std::sync::Arc;

use ::redis::Pipeline;

use super::node::Node;
use super::redis_store::RedisStore;
use super::reply;
use super::request::ScriptRequest;
use super::value::Value;
use crate::error::ErrorKind;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, InspectResult, LockState, QueuePosition};

/// How many locks go into one batch: few enough that other clients do not wait long.
const BATCH: usize = 250;

/// Locks on one node, by their indexes in the requested list.
pub(super) type LocksOnNode = (Arc<Node>, Vec<usize>);

impl RedisStore {
    pub(super) async fn try_inspect(
        &self,
        name: &LockName,
        limit: Moment,
    ) -> Result<Option<LockState>, Failure> {
        let keys = self.inspect_keys(name);
        let look = &self.scripts().look;
        let request = ScriptRequest {
            name,
            replicas: 0,
            grants: None,
            script: look,
            keys: &keys,
        };
        let answer = self.run_script(&request, |_, _| Vec::new(), limit).await?;
        reply::inspect(self.layout, name, answer.reply)
    }

    pub(super) async fn try_queue_position(
        &self,
        name: &LockName,
        index: &LeaseId,
        limit: Moment,
    ) -> Result<Option<QueuePosition>, Failure> {
        let (key, limit) = (name.as_str(), self.command_limit(limit));
        let left = ::redis::cmd("PTTL").arg(key).clone();
        let left = self.run_at_key(key, &left, limit).await?;
        let Some(remaining) = reply::time_left(&left) else {
            return Ok(None);
        };
        let mut rank = ::redis::cmd("ZRANK");
        rank.arg(name.neighbour("queue")).arg(index.as_str());
        let rank = self.run_at_key(key, &rank, limit).await?.as_int();
        let ahead = rank.and_then(|rank| u64::try_from(rank).ok());
        Ok(ahead.map(|ahead| QueuePosition { remaining, ahead }))
    }

    pub(super) async fn try_inspect_all(
        &self,
        names: &[LockName],
        limit: Moment,
    ) -> Result<Vec<InspectResult>, Failure> {
        let mut results: Vec<InspectResult> = names.iter().map(|_| Ok(None)).collect();
        for (node, indexes) in self.group_by_node(names, &mut results) {
            for batch in indexes.chunks(BATCH) {
                let replies = self.inspect_on(&node, names, batch, limit).await;
                let replies =
                    replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
                for (index, reply) in batch.iter().zip(replies) {
                    let name = &names[*index];
                    results[*index] = if let Value::Error(error) = &reply {
                        // It may have moved. A user without access to this lock may have access to
                        // others.
                        self.routes.note_error_reply(&node, error);
                        match self.try_inspect(name, limit).await {
                            Err(failure) if failure.error.kind() != ErrorKind::Denied => {
                                return Err(failure);
                            }
                            results => results,
                        }
                    } else {
                        reply::inspect(self.layout, name, reply)
                    };
                }
            }
        }
        Ok(results)
    }

    /// Groups the locks by node. For a lock without a node, the error goes to its place in
    /// `results`, if there is one.
    pub(super) fn group_by_node(
        &self,
        names: &[LockName],
        results: &mut [InspectResult],
    ) -> Vec<LocksOnNode> {
        let mut groups: Vec<LocksOnNode> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let node = match self.route(name) {
                Ok(route) => route.node,
                Err(failure) => {
                    if let Some(results) = results.get_mut(index) {
                        *results = Err(failure);
                    }
                    continue;
                }
            };
            let mut known = groups.iter_mut();
            match known.find(|(known, _)| Arc::ptr_eq(known, &node)) {
                Some((_, indexes)) => indexes.push(index),
                None => groups.push((node, vec![index])),
            }
        }
        groups
    }

    async fn inspect_on(
        &self,
        node: &Node,
        names: &[LockName],
        indexes: &[usize],
        limit: Moment,
    ) -> Result<Vec<Value>, Failure> {
        let limit = self.command_limit(limit);
        let connection = node.commands.connection(limit).await?;
        let look = &self.scripts().look;
        let mut pipeline = Pipeline::with_capacity(indexes.len());
        for (at, index) in indexes.iter().enumerate() {
            // The first command carries the script text, so that the server knows the script for
            // the others.
            let command = if at == 0 {
                pipeline.cmd("EVAL").arg(look.code())
            } else {
                pipeline.cmd("EVALSHA").arg(look.hash())
            };
            let keys = self.inspect_keys(&names[*index]);
            command.arg(keys.len()).arg(&keys);
        }
        connection.run_all(&pipeline, limit).await
    }

    fn inspect_keys(&self, name: &LockName) -> [String; 4] {
        [
            name.as_str().to_owned(),
            self.layout.counter_key(name),
            name.neighbour("meta"),
            self.layout.fence_key(name),
        ]
    }
}
