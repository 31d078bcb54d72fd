//! Asks whose turn it is, after one process has had a lock several times in a row.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::{fence, released};
use crate::layout::Layout;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::{Failure, LeaseSpec, TurnReply};

pub(in crate::store::redis) struct Turn<'a> {
    pub(in crate::store::redis) lease: &'a LeaseSpec,
    /// How many fences to reserve if the lock is ours again.
    pub(in crate::store::redis) fences: u32,
    /// The waiter of this process in the queue.
    pub(in crate::store::redis) place: Option<&'a LeaseId>,
}

impl Operation for Turn<'_> {
    type Reply = TurnReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    fn replicas(&self) -> u32 {
        self.lease.replicas
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, self.name());
        let last_fence = lease.last_fence.map(|fence| fence.get().to_string());
        let channel = (at.keys.layout == Layout::Redisson).then(|| at.keys.redisson_channel(name));
        ScriptCall::new(&at.scripts().turn)
            .key(at.keys.lock(name))
            .keys(at.counter_keys(name))
            .keys(at.keys.queue(name))
            .keys(lease.has_meta.then(|| at.keys.neighbour(name, "meta")))
            .arg(&lease.id)
            .arg(self.place.map_or("", LeaseId::as_str))
            .arg(lease.ttl.as_millis())
            .arg(self.fences)
            .arg(last_fence.unwrap_or_default())
            .args(channel)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<TurnReply, Rejection>, Failure> {
        let (value, sent_at) = (&reply.value, reply.sent_at);
        match fence(value) {
            Some(fence) => Ok(Ok(TurnReply::Again { fence, sent_at })),
            None => released(reply.layout, self.name(), value, sent_at)
                .map(|it| Ok(TurnReply::Passed(it))),
        }
    }
}
