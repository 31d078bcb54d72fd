//! Reads the live waiters of a lock.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::Failure;
use crate::store::redis::script::WAITERS;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;

pub(in crate::store::redis) struct Waiters<'a>(pub(in crate::store::redis) &'a LockName);

impl Operation for Waiters<'_> {
    /// `None` if the server does not say.
    type Reply = Option<Vec<LeaseId>>;

    fn name(&self) -> &LockName {
        self.0
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        ScriptCall::new(&WAITERS).keys(at.keys.queue(self.0))
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<Self::Reply, Rejection>, Failure> {
        let ids = reply.value.as_array().map(|ids| {
            let ids = ids.iter().filter_map(Value::lossy);
            ids.map(LeaseId::new).collect()
        });
        Ok(Ok(ids))
    }
}
