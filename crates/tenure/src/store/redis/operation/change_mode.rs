//! Continues a lease in the other mode, under another id.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::{fence, not_held, number};
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, LeaseSpec, ModeReply};

pub(in crate::store::redis) struct ChangeMode<'a> {
    pub(in crate::store::redis) from: &'a LeaseId,
    pub(in crate::store::redis) lease: &'a LeaseSpec,
}

impl Operation for ChangeMode<'_> {
    type Reply = ModeReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn replicas(&self) -> u32 {
        self.lease.replicas
    }

    fn grants(&self) -> bool {
        true
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (name, scripts) = (self.name(), at.scripts());
        let script = match self.lease.mode {
            Mode::Exclusive => &scripts.upgrade,
            Mode::Shared | Mode::Permit => &scripts.downgrade,
        };
        let mut call = ScriptCall::new(script)
            .key(at.keys.lock(name))
            .keys(at.counter_keys(name))
            .keys(at.keys.queue(name))
            .key(at.keys.neighbour(name, "readers"));
        if self.lease.mode == Mode::Shared {
            call = call.key(at.keys.neighbour(name, "meta"));
        }
        call.arg(self.from)
            .arg(&self.lease.id)
            .arg(self.lease.ttl.as_millis())
            .arg(at.latest_us)
            .arg(&at.primary)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<ModeReply, Rejection>, Failure> {
        let (value, sent_at) = (&reply.value, reply.sent_at);
        let unexpected = || Failure::refused(value.unexpected("the change of a mode"));
        if value.as_int().is_some() {
            let fence = fence(value).ok_or_else(unexpected)?;
            return Ok(Ok(ModeReply::Changed { fence, sent_at }));
        }
        let parts = value.as_array().ok_or_else(unexpected)?;
        let part = |at: usize| parts.get(at).unwrap_or(&Value::Nil);
        let count = |at: usize| number(part(at)).ok_or_else(unexpected);
        Ok(match part(0).as_str() {
            Some("shared") => Ok(ModeReply::Shared {
                readers: count(1)?,
                waiters: count(2)?,
            }),
            Some("gone") => Ok(ModeReply::NotHeld(not_held(part(1)))),
            Some("late") => Err(Rejection::Late(count(1)?)),
            Some("master") => Err(Rejection::OtherPrimary),
            _ => return Err(unexpected()),
        })
    }
}
