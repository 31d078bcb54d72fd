//! Releases a lease on one node of a Redlock.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::redis::vote::{Ballot, NodeReleaseReply};
use crate::store::{Failure, LeaseSpec};

pub(in crate::store::redis) struct ReleaseVote {
    pub(in crate::store::redis) lease: LeaseSpec,
    /// Only the vote for this block of fences; `None` for whatever the node has for this lease.
    pub(in crate::store::redis) ballot: Option<Ballot>,
    /// Whether to publish to the waiters.
    pub(in crate::store::redis) notify: bool,
}

impl Operation for ReleaseVote {
    type Reply = NodeReleaseReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (&self.lease, self.name());
        let last = self.ballot.map(|ballot| ballot.last().to_string());
        let call = ScriptCall::new(&at.redlock_scripts().release)
            .key(name.as_str())
            .key(at.layout.fence_key(name))
            .keys(lease.has_meta.then(|| name.neighbour("meta")))
            .arg(&lease.id)
            .arg(last.unwrap_or_default());
        if !self.notify {
            return call.arg("");
        }
        let channels = at.layout.channels(name).into_iter();
        call.args(channels.map(|(channel, _)| channel))
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<NodeReleaseReply, Rejection>, Failure> {
        let parts = reply.value.as_array().unwrap_or_default();
        match parts.first().and_then(Value::as_int) {
            Some(1) => Ok(Ok(NodeReleaseReply::WasHeld)),
            Some(_) => Ok(Ok(NodeReleaseReply::NotHeld)),
            None => Err(Failure::refused(reply.value.unexpected("release.lua"))),
        }
    }
}
