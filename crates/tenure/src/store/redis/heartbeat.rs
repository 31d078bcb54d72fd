//! Heartbeats of waiters, and the live waiters of a lock.

use super::operation::{Heartbeat, Waiters};
use super::perform::BatchReply;
use super::redis_store::RedisStore;
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
            let operations: Vec<_> = batch.iter().map(Heartbeat).collect();
            let replies = self.perform_batch(&node, &operations, limit).await;
            let replies = replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
            for (operation, reply) in operations.iter().zip(replies) {
                answers.push(match reply {
                    BatchReply::Reply(queued) => queued,
                    BatchReply::Failed(failure) => return Err(failure),
                    BatchReply::Alone => self.perform(operation, limit).await?.reply,
                });
            }
        }
        Ok(answers)
    }

    pub(super) async fn try_waiters(
        &self,
        names: &[LockName],
        limit: Moment,
    ) -> Result<Vec<Option<Vec<LeaseId>>>, Failure> {
        let mut waiters: Vec<Option<Vec<LeaseId>>> = vec![None; names.len()];
        for (node, indexes) in self.group_by_node(names, &mut []) {
            for batch in indexes.chunks(BATCH) {
                let operations: Vec<_> = batch.iter().map(|at| Waiters(&names[*at])).collect();
                let replies = self.perform_batch(&node, &operations, limit).await;
                let replies =
                    replies.map_err(|failure| self.routes.note_failure(&node, failure))?;
                for (index, reply) in batch.iter().zip(replies) {
                    waiters[*index] = match reply {
                        BatchReply::Reply(waiters) => waiters,
                        BatchReply::Failed(failure) => return Err(failure),
                        BatchReply::Alone => self.waiters_alone(&names[*index], limit).await?,
                    };
                }
            }
        }
        Ok(waiters)
    }

    /// A user without access to this lock may have access to others.
    async fn waiters_alone(
        &self,
        name: &LockName,
        limit: Moment,
    ) -> Result<Option<Vec<LeaseId>>, Failure> {
        match self
            .perform(&Waiters(name), limit)
            .await
            .map_err(Failure::from)
        {
            Ok(performed) => Ok(performed.reply),
            Err(failure) if failure.error.kind() == ErrorKind::Denied => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}
