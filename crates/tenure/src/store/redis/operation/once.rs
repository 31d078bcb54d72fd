//! A step of a run for one fire time of a schedule.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::not_a_lock;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::redis::script::ONCE;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, RunRequest, RunState, RunStep};

pub(in crate::store::redis) struct TakeRunStep<'a>(pub(in crate::store::redis) &'a RunRequest);

impl Operation for TakeRunStep<'_> {
    type Reply = RunState;

    fn name(&self) -> &LockName {
        &self.0.held.name
    }

    fn replicas(&self) -> u32 {
        match self.0.step {
            RunStep::Begin { .. } | RunStep::Complete { .. } => self.0.held.replicas,
            RunStep::Look | RunStep::Forget => 0,
        }
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (word, remember, retry) = match self.0.step {
            RunStep::Look => ("look", 0, ""),
            RunStep::Begin { retry, remember } => {
                let retry = if retry { "retry" } else { "" };
                ("begin", remember.as_millis(), retry)
            }
            RunStep::Complete { remember } => ("complete", remember.as_millis(), ""),
            RunStep::Forget => ("forget", 0, ""),
        };
        let name = self.name();
        ScriptCall::new(&ONCE)
            .key(at.keys.lock(name))
            .key(at.keys.neighbour(name, "once"))
            .arg(word)
            .arg(&self.0.held.id)
            .arg(remember)
            .arg(retry)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<RunState, Rejection>, Failure> {
        let unexpected = || Failure::refused(reply.value.unexpected("once.lua"));
        let parts = reply.value.as_array().ok_or_else(unexpected)?;
        let second = parts.get(1).unwrap_or(&Value::Nil);
        let run = || second.lossy().map(LeaseId::new);
        let state = match parts.first().and_then(Value::as_str) {
            Some("new") => RunState::New,
            Some("running") => RunState::Running(run().ok_or_else(unexpected)?),
            Some("ended") => RunState::Ended(run().ok_or_else(unexpected)?),
            Some("completed") => RunState::Completed(run().ok_or_else(unexpected)?),
            Some("lost") => RunState::NotHeld(run()),
            Some("type") => return Err(not_a_lock(reply.layout, self.name(), second)),
            _ => return Err(unexpected()),
        };
        Ok(Ok(state))
    }
}
