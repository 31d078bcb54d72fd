//! Asks whose turn it is, after one process has had a lock several times in a row.

use super::operation::Turn;
use super::redis_store::RedisStore;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::store::{Failure, LeaseSpec, TurnReply};

impl RedisStore {
    pub(super) async fn try_turn(
        &self,
        lease: &LeaseSpec,
        fences: u32,
        place: Option<&LeaseId>,
        limit: Moment,
    ) -> Result<TurnReply, Failure> {
        let turn = Turn {
            lease,
            fences,
            place,
        };
        let performed = self.perform(&turn, limit).await?;
        if matches!(performed.reply, TurnReply::Again { .. }) {
            // If this fails, the lease is released: it has not gone to another waiter.
            let (connection, latest_us) = (&performed.connection, performed.latest_us);
            self.confirm(connection, lease, latest_us, limit).await?;
        }
        Ok(performed.reply)
    }
}
