//! Offers a lease again to a node of a Redlock that has forgotten it.

use std::collections::BTreeMap;

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::number;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, LeaseSpec};

pub(in crate::store::redis) struct Repair<'a> {
    pub(in crate::store::redis) lease: &'a LeaseSpec,
    pub(in crate::store::redis) last_fence: u64,
    /// The lease's metadata, as other nodes have it.
    pub(in crate::store::redis) meta: &'a BTreeMap<String, String>,
}

impl Operation for Repair<'_> {
    /// Whether the node has the lease now.
    type Reply = bool;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, self.name());
        let mut call = ScriptCall::new(&at.redlock_scripts().repair)
            .key(at.keys.lock(name))
            .key(at.keys.fence(name))
            .keys(lease.has_meta.then(|| at.keys.neighbour(name, "meta")))
            .arg(&lease.id)
            .arg(lease.ttl.as_millis())
            .arg(at.latest_us)
            .arg(self.last_fence);
        for (field, value) in self.meta.iter().filter(|_| lease.has_meta) {
            call = call.arg(field).arg(value);
        }
        call
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<bool, Rejection>, Failure> {
        let parts = reply.value.as_array().unwrap_or_default();
        let first = parts.first().unwrap_or(&Value::Nil);
        Ok(match (first.as_str(), parts.get(1).and_then(number)) {
            (Some("late"), Some(server_us)) => Err(Rejection::Late(server_us)),
            _ => Ok(first.as_int() == Some(1)),
        })
    }
}
