//! A party arrives at a latch, or a look at one.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::not_a_lock;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::redis::script::LATCH;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Arrival, Failure, LatchReply};

pub(in crate::store::redis) struct Arrive<'a>(pub(in crate::store::redis) &'a Arrival);

impl Operation for Arrive<'_> {
    type Reply = LatchReply;

    fn name(&self) -> &LockName {
        &self.0.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let Arrival {
            name,
            need,
            remember,
            party,
        } = self.0;
        ScriptCall::new(&LATCH)
            .key(at.keys.lock(name))
            .key(at.keys.neighbour(name, "arrived"))
            .arg(need)
            .arg(remember.as_millis())
            .arg(party.as_deref().unwrap_or_default())
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<LatchReply, Rejection>, Failure> {
        let unexpected = || Failure::refused(reply.value.unexpected("latch.lua"));
        let parts = reply.value.as_array().ok_or_else(unexpected)?;
        let second = parts.get(1).unwrap_or(&Value::Nil);
        let number = || {
            second
                .as_int()
                .and_then(|number| u32::try_from(number).ok())
        };
        Ok(Ok(match parts.first().and_then(Value::as_str) {
            Some("closed") => LatchReply::Closed {
                arrived: number().ok_or_else(unexpected)?,
            },
            Some("open") => LatchReply::Open,
            Some("need") => LatchReply::OtherNeed(number().ok_or_else(unexpected)?),
            Some("lock") => LatchReply::Lock(LeaseId::new(second.lossy().ok_or_else(unexpected)?)),
            Some("type") => return Err(not_a_lock(reply.layout, self.name(), second)),
            _ => return Err(unexpected()),
        }))
    }
}
