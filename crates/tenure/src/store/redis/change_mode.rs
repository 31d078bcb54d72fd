//! Changes the mode of a lease.

use super::operation::ChangeMode;
use super::redis_store::RedisStore;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::store::{Failure, LeaseSpec, ModeReply};

impl RedisStore {
    pub(super) async fn try_change_mode(
        &self,
        from: &LeaseId,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<ModeReply, Failure> {
        let performed = self.perform(&ChangeMode { from, lease }, limit).await?;
        if matches!(performed.reply, ModeReply::Changed { .. }) {
            let (connection, latest_us) = (&performed.connection, performed.latest_us);
            let confirmed = self.confirm(connection, lease, latest_us, limit).await;
            // The lease has its new id by now, so a caller that gives up must release it.
            let in_flight = Some(connection.in_flight(latest_us));
            confirmed.map_err(|unconfirmed| Failure {
                in_flight,
                ..unconfirmed.into()
            })?;
        }
        Ok(performed.reply)
    }
}
