//! Renews a lease for a full ttl.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::not_held;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, LeaseSpec, RenewReply};

pub(in crate::store::redis) struct Renew<'a> {
    pub(in crate::store::redis) lease: &'a LeaseSpec,
    /// Whether the connection that sends it follows the key.
    pub(in crate::store::redis) tracked: bool,
}

impl Operation for Renew<'_> {
    type Reply = RenewReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn replicas(&self) -> u32 {
        self.lease.replicas
    }

    fn renews(&self) -> bool {
        true
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, self.name());
        let beside = match lease.mode {
            Mode::Exclusive if lease.has_meta => vec![at.keys.neighbour(name, "meta")],
            Mode::Exclusive => Vec::new(),
            Mode::Shared => vec![at.keys.neighbour(name, "readers")],
            Mode::Permit => at.keys.permits(name).into(),
        };
        ScriptCall::new(at.scripts().renew(lease.mode))
            .key(at.keys.lock(name))
            .keys(beside)
            .arg(&lease.id)
            .arg(lease.ttl.as_millis())
            .arg(u8::from(self.tracked))
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<RenewReply, Rejection>, Failure> {
        let (value, sent_at) = (&reply.value, reply.sent_at);
        let parts = value.as_array().unwrap_or_default();
        match parts.first().and_then(Value::as_int) {
            Some(1) => Ok(Ok(RenewReply::Until { sent_at })),
            Some(_) => {
                let holder = parts.get(1).unwrap_or(&Value::Nil);
                Ok(Ok(RenewReply::NotHeld(not_held(holder))))
            }
            None => Err(Failure::refused(value.unexpected("renew.lua"))),
        }
    }
}
