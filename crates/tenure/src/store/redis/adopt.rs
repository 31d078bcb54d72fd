//! Adopts a detached lease.

use super::operation::Adopt;
use super::redis_store::RedisStore;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::store::{Failure, LeaseSpec, RenewReply};

impl RedisStore {
    pub(super) async fn try_adopt(
        &self,
        from: &LeaseId,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<RenewReply, Failure> {
        let performed = self.perform(&Adopt { from, lease }, limit).await?;
        if matches!(performed.reply, RenewReply::Until { .. }) {
            let (connection, latest_us) = (&performed.connection, performed.latest_us);
            let confirmed = self.confirm(connection, lease, latest_us, limit).await;
            // The lease has our id by now, so a caller that gives up must release it.
            let in_flight = Some(connection.in_flight(latest_us));
            confirmed.map_err(|unconfirmed| Failure {
                in_flight,
                ..unconfirmed.into()
            })?;
        }
        Ok(performed.reply)
    }
}
