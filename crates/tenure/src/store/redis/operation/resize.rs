//! Changes the limit of a semaphore.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::not_a_lock;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, a_lock};

pub(in crate::store::redis) struct Resize<'a> {
    pub(in crate::store::redis) name: &'a LockName,
    pub(in crate::store::redis) limit: u32,
}

impl Operation for Resize<'_> {
    type Reply = ();

    fn name(&self) -> &LockName {
        self.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        ScriptCall::new(&at.scripts().permits.resize)
            .key(at.keys.lock(self.name))
            .keys(at.keys.queue(self.name))
            .keys(at.keys.permits(self.name))
            .arg(self.limit)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<(), Rejection>, Failure> {
        let unexpected = || Failure::refused(reply.value.unexpected("resize.lua"));
        let parts = reply.value.as_array().ok_or_else(unexpected)?;
        let second = parts.get(1).unwrap_or(&Value::Nil);
        match parts.first().and_then(Value::as_str) {
            Some("resized") => Ok(Ok(())),
            Some("lock") => {
                let holder = LeaseId::new(second.lossy().ok_or_else(unexpected)?);
                Err(a_lock(self.name, &holder))
            }
            Some("type") => Err(not_a_lock(reply.layout, self.name, second)),
            _ => Err(unexpected()),
        }
    }
}
