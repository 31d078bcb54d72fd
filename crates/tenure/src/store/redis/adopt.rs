//! Adopts a detached lease.

use super::connection::Connection;
use super::failover_pause::GrantPause;
use super::redis_store::RedisStore;
use super::reply;
use super::request::ScriptRequest;
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
        let keys = [lease.name.as_str().to_owned(), lease.name.neighbour("meta")];
        let arguments = |connection: &Connection, latest_us: u64| {
            vec![
                from.as_str().to_owned(),
                lease.id.as_str().to_owned(),
                lease.ttl.as_millis().to_string(),
                latest_us.to_string(),
                self.primary_argument(connection),
            ]
        };
        // Another client may have adopted it, and a new primary may not know that.
        let pause = GrantPause::default();
        let request =
            ScriptRequest::for_lease(lease, &self.scripts().adopt, &keys).granting(&pause);
        let adopting = self.run_before_deadline(&request, arguments, reply::adoption, limit);
        let (renewed, reply) = adopting.await?;
        if matches!(renewed, RenewReply::Until { .. }) {
            let (connection, latest_us) = (&reply.connection, reply.latest_us);
            let confirmed = self.confirm(connection, lease, latest_us, limit).await;
            // The lease has our id by now, so a caller that gives up must release it.
            let in_flight = Some(connection.in_flight(latest_us));
            confirmed.map_err(|unconfirmed| Failure {
                in_flight,
                ..unconfirmed.into()
            })?;
        }
        Ok(renewed)
    }
}
