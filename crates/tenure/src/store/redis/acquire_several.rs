//! Acquires several locks in one step, and releases several.

use super::arguments::Arguments;
use super::cluster::Slot;
use super::connection::SendOptions;
use super::operation::AcquireSeveral;
use super::perform::Unperformed;
use super::redis_store::RedisStore;
use super::script::RELEASE_ALL;
use super::script_call::ScriptCall;
use super::value::Value;
use crate::layout::Layout;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Attempt, Failure, LeaseSpec, ReleaseReply, SeveralReply};

impl RedisStore {
    /// Whether one script may have the keys of these locks. Redisson's locks are acquired one by one,
    /// because each of their releases also tells the waiters of other libraries.
    pub(super) fn can_acquire_together(&self, names: &[&LockName]) -> bool {
        let mut slots = names.iter().map(|it| Slot::of_key(&self.keys.lock(it)));
        let first = slots.next();
        let is_one_slot = slots.all(|slot| Some(slot) == first);
        self.keys.layout == Layout::Native && (is_one_slot || self.routes.shares_counter())
    }

    pub(super) async fn try_acquire_several(
        &self,
        attempts: &[Attempt],
        limit: Moment,
    ) -> Result<SeveralReply, Failure> {
        let performed = match self.perform(&AcquireSeveral(attempts), limit).await {
            Ok(performed) => performed,
            Err(Unperformed::Paused(not_yet)) => return Ok(SeveralReply::NotYet(not_yet)),
            Err(Unperformed::Failed(failure)) => return Err(failure),
        };
        if !matches!(performed.reply, SeveralReply::Granted { .. }) {
            return Ok(performed.reply);
        }
        let leases: Vec<&LeaseSpec> = attempts.iter().map(|attempt| &attempt.held).collect();
        let confirmed = self.confirm_grant(performed, &leases, limit).await?;
        Ok(confirmed.unwrap_or_else(SeveralReply::NotYet))
    }

    /// Releases leases with one script, as far as it can: the others are left as they are, for
    /// release.lua.
    pub(super) async fn try_release_several(
        &self,
        leases: &[LeaseSpec],
        limit: Moment,
    ) -> Result<Vec<Option<ReleaseReply>>, Failure> {
        let names: Vec<&LockName> = leases.iter().map(|lease| &lease.name).collect();
        let is_usual = leases.iter().all(|lease| self.is_released_as_usual(lease));
        let Some(first) = names.first().filter(|_| is_usual) else {
            return Ok(leases.iter().map(|_| None).collect());
        };
        if !self.can_acquire_together(&names) {
            return Ok(leases.iter().map(|_| None).collect());
        }
        let node = self.route(first)?.node;
        let limit = self.command_limit(limit);
        let connection = node.commands.connection(limit).await?;
        let queues = names.iter().map(|name| self.keys.neighbour(name, "queue"));
        let keys = names.iter().map(|name| self.keys.lock(name));
        let mut ids = Arguments::new();
        for lease in leases {
            ids.push(lease.id.as_str());
        }
        let call = ScriptCall::with(&RELEASE_ALL, keys.chain(queues).collect(), ids);
        let released = connection.script(&call, SendOptions::until(limit)).await;
        let reply = released.map_err(|failure| self.routes.note_failure(&node, failure))?;
        let results = reply.as_array().unwrap_or_default();
        let read = |at: usize| {
            let is_released = results.get(at) == Some(&Value::Int(1));
            is_released.then_some(ReleaseReply::WasHeld { offered_to: None })
        };
        Ok((0..leases.len()).map(read).collect())
    }
}
