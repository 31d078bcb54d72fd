//! Releases a lease on one node of a Redlock.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::redis::vote_request::{Ballot, NodeReleaseReply, PlaceAfter, WAITERS};
use crate::store::{Failure, LeaseSpec};

pub(in crate::store::redis) struct ReleaseVote<'a> {
    pub(in crate::store::redis) lease: &'a LeaseSpec,
    /// Only the vote for this block of fences; `None` for whatever the node has for this lease.
    pub(in crate::store::redis) ballot: Option<Ballot>,
    /// Whether to publish to the waiters.
    pub(in crate::store::redis) notify: bool,
    /// A waiter of the same process, and what becomes of its place.
    pub(in crate::store::redis) place: Option<&'a (LeaseId, PlaceAfter)>,
}

impl Operation for ReleaseVote<'_> {
    type Reply = NodeReleaseReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, self.name());
        let last = self.ballot.map(|ballot| ballot.last().to_string());
        let call = ScriptCall::new(&at.redlock_scripts().release)
            .key(at.keys.lock(name))
            .key(at.keys.fence(name))
            .key(at.keys.neighbour(name, WAITERS))
            .keys(lease.has_meta.then(|| at.keys.neighbour(name, "meta")))
            .arg(&lease.id)
            .arg(last.unwrap_or_default());
        let (waiter, after) = match self.place {
            None => ("", ""),
            Some((waiter, PlaceAfter::Leave)) => (waiter.as_str(), "leave"),
            Some((waiter, PlaceAfter::Last)) => (waiter.as_str(), "last"),
        };
        if !self.notify {
            return call.arg("").arg(waiter).arg(after);
        }
        let mut channels = at.keys.channels(name).into_iter();
        let wake = channels.next().map(|(channel, _)| channel);
        call.args(wake)
            .arg(waiter)
            .arg(after)
            .args(channels.map(|(channel, _)| channel))
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<NodeReleaseReply, Rejection>, Failure> {
        let parts = reply.value.as_array().unwrap_or_default();
        match parts.first().and_then(Value::as_int) {
            Some(1) => Ok(Ok(NodeReleaseReply::WasHeld)),
            Some(2) => Ok(Ok(NodeReleaseReply::Offered)),
            Some(_) => Ok(Ok(NodeReleaseReply::NotHeld)),
            None => Err(Failure::refused(reply.value.unexpected("release.lua"))),
        }
    }
}
