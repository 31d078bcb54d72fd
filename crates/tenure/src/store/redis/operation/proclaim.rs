//! Changes the value of a leader.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::not_held;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, Proclamation, WatchReply};

pub(in crate::store::redis) struct Proclaim<'a>(pub(in crate::store::redis) &'a Proclamation);

impl Operation for Proclaim<'_> {
    type Reply = WatchReply;

    fn name(&self) -> &LockName {
        &self.0.held.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let Proclamation {
            held,
            term,
            version,
            value,
        } = self.0;
        ScriptCall::new(&at.scripts().proclaim)
            .key(at.keys.lock(&held.name))
            .key(at.keys.neighbour(&held.name, "meta"))
            .arg(&held.id)
            .arg(held.ttl.as_millis())
            .arg(term)
            .arg(version)
            .arg(value)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<WatchReply, Rejection>, Failure> {
        let parts = reply.value.as_array().unwrap_or_default();
        match parts.first().and_then(Value::as_int) {
            Some(1) => Ok(Ok(WatchReply::Held)),
            Some(_) => {
                let holder = parts.get(1).unwrap_or(&Value::Nil);
                Ok(Ok(WatchReply::NotHeld(not_held(holder))))
            }
            None => Err(Failure::refused(reply.value.unexpected("proclaim.lua"))),
        }
    }
}
