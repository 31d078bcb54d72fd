//! Asks whose turn it is, after one process has had a lock several times in a row.

use super::connection::Connection;
use super::redis_store::RedisStore;
use super::reply;
use super::request::ScriptRequest;
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
        let mut keys = vec![
            lease.name.as_str().to_owned(),
            self.layout.counter_key(&lease.name),
            lease.name.neighbour("queue"),
            lease.name.neighbour("alive"),
        ];
        if lease.has_meta {
            keys.push(lease.name.neighbour("meta"));
        }
        let last_fence = lease.last_fence.map(|fence| fence.get().to_string());
        let arguments = |_: &Connection, _| {
            let mut arguments = vec![
                lease.id.as_str().to_owned(),
                place.map_or("", LeaseId::as_str).to_owned(),
                lease.ttl.as_millis().to_string(),
                fences.to_string(),
                last_fence.clone().unwrap_or_default(),
            ];
            arguments.extend(self.layout.turn_arguments(lease));
            arguments
        };
        let request = ScriptRequest::for_lease(lease, &self.scripts().turn, &keys);
        let reply = self.run_script(&request, arguments, limit).await?;
        let turn = reply::turn(self.layout, &lease.name, reply.sent_at, &reply.reply)?;
        if matches!(turn, TurnReply::Again { .. }) {
            // If this fails, the lease is released: it has not gone to another waiter.
            let (connection, latest_us) = (&reply.connection, reply.latest_us);
            self.confirm(connection, lease, latest_us, limit).await?;
        }
        Ok(turn)
    }
}
