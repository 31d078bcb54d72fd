//! Continues a detached lease under another id.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::{not_held, number};
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, LeaseSpec, RenewReply};

pub(in crate::store::redis) struct Adopt<'a> {
    pub(in crate::store::redis) from: &'a LeaseId,
    pub(in crate::store::redis) lease: &'a LeaseSpec,
}

impl Operation for Adopt<'_> {
    type Reply = RenewReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn replicas(&self) -> u32 {
        self.lease.replicas
    }

    /// Another client may have adopted the lease, and a new primary may not know that.
    fn grants(&self) -> bool {
        true
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (name, scripts) = (self.name(), at.scripts());
        let (script, beside) = match self.lease.mode {
            Mode::Shared => (&scripts.shared.adopt, "readers"),
            // Permits are refused before anything is sent.
            Mode::Exclusive | Mode::Permit => (&scripts.exclusive.adopt, "meta"),
        };
        ScriptCall::new(script)
            .key(at.keys.lock(name))
            .key(at.keys.neighbour(name, beside))
            .arg(self.from)
            .arg(&self.lease.id)
            .arg(self.lease.ttl.as_millis())
            .arg(at.latest_us)
            .arg(&at.primary)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<RenewReply, Rejection>, Failure> {
        let (value, sent_at) = (&reply.value, reply.sent_at);
        let unexpected = || Failure::refused(value.unexpected("adopt.lua"));
        let parts = value.as_array().ok_or_else(unexpected)?;
        let second = parts.get(1).unwrap_or(&Value::Nil);
        Ok(match parts.first().and_then(Value::as_str) {
            Some("adopted") => Ok(RenewReply::Until { sent_at }),
            Some("gone") => Ok(RenewReply::NotHeld(not_held(second))),
            Some("late") => Err(Rejection::Late(number(second).ok_or_else(unexpected)?)),
            Some("master") => Err(Rejection::OtherPrimary),
            _ => return Err(unexpected()),
        })
    }
}
