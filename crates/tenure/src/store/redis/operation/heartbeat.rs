//! Shows that a waiter is alive, so that it keeps its place in the queue.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use crate::name::LockName;
use crate::store::redis::script::STAY;
use crate::store::redis::script_call::ScriptCall;
use crate::store::{Failure, QueuedWaiter};

pub(in crate::store::redis) struct Heartbeat<'a>(pub(in crate::store::redis) &'a QueuedWaiter);

impl Operation for Heartbeat<'_> {
    /// Whether the waiter is still in the queue; `None` if unknown.
    type Reply = Option<bool>;

    fn name(&self) -> &LockName {
        &self.0.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        ScriptCall::new(&STAY)
            .keys(at.keys.queue(&self.0.name))
            .arg(&self.0.id)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<Option<bool>, Rejection>, Failure> {
        Ok(Ok(reply.value.as_int().map(|queued| queued == 1)))
    }
}
