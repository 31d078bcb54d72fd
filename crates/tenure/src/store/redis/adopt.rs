//! Taking up a lease that somebody gave away.

use super::connection::Connection;
use super::failover_pause::GrantPause;
use super::request::ScriptRequest;
use super::{RedisStore, reply};
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
                self.master_argument(connection),
            ]
        };
        // Somebody else may have adopted it, and this master not have heard of that.
        let too_young = GrantPause::default();
        let question =
            ScriptRequest::about(lease, &self.scripts().adopt, &keys).for_new(&too_young);
        let adopting = self.in_time(&question, arguments, reply::adoption, limit);
        let (renewed, answer) = adopting.await?;
        if matches!(renewed, RenewReply::Until { .. }) {
            let (connection, latest_us) = (&answer.connection, answer.latest_us);
            let confirmed = self.confirm(connection, lease, latest_us, limit).await;
            // It goes by our id by now: whoever gives up must give it back.
            let landing = Some(connection.landing(latest_us));
            confirmed.map_err(|unconfirmed| Failure {
                landing,
                ..unconfirmed.into()
            })?;
        }
        Ok(renewed)
    }
}
