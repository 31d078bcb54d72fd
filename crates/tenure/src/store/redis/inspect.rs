//! Inspects locks without acquiring them: one by one, or in batches.

use std::sync::Arc;

use super::command::cmd;
use super::node::Node;
use super::operation::{Inspect, time_left};
use super::perform::BatchReply;
use super::redis_store::RedisStore;
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
        Ok(self.perform(&Inspect(name), limit).await?.reply)
    }

    pub(super) async fn try_queue_position(
        &self,
        name: &LockName,
        index: &LeaseId,
        limit: Moment,
    ) -> Result<Option<QueuePosition>, Failure> {
        let (key, limit) = (self.keys.lock(name), self.command_limit(limit));
        let left = cmd("PTTL").arg(key.as_str()).clone();
        let left = self.run_at_key(&key, &left, limit).await?;
        let Some(remaining) = time_left(&left) else {
            return Ok(None);
        };
        let mut rank = cmd("ZRANK");
        rank.arg(self.keys.neighbour(name, "queue").as_str());
        rank.arg(index.as_str());
        let rank = self.run_at_key(&key, &rank, limit).await?.as_int();
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
                let operations: Vec<_> = batch.iter().map(|at| Inspect(&names[*at])).collect();
                let replies = self.perform_batch(&node, &operations, limit).await;
                let replies =
                    replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
                for (index, reply) in batch.iter().zip(replies) {
                    results[*index] = match reply {
                        BatchReply::Reply(state) => Ok(state),
                        BatchReply::Failed(failure) => Err(failure),
                        BatchReply::Alone => self.inspect_alone(&names[*index], limit).await?,
                    };
                }
            }
        }
        Ok(results)
    }

    /// A user without access to this lock may have access to others.
    async fn inspect_alone(
        &self,
        name: &LockName,
        limit: Moment,
    ) -> Result<InspectResult, Failure> {
        match self.try_inspect(name, limit).await {
            Err(failure) if failure.error.kind() != ErrorKind::Denied => Err(failure),
            result => Ok(result),
        }
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
}
