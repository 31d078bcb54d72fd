//! Ends a lease, and offers the lock to the next waiter.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::released;
use crate::layout::Layout;
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::{Failure, LeaseSpec, ReleaseReply};

#[derive(Clone, Copy)]
pub(in crate::store::redis) struct Release<'a> {
    pub(in crate::store::redis) lease: &'a LeaseSpec,
    /// A waiter that leaves the queue as well.
    pub(in crate::store::redis) dequeue: Option<&'a LeaseId>,
    /// Whether the reply reaches the client of this lease, and so its waiters.
    pub(in crate::store::redis) is_heard: bool,
    /// The waiter to offer the lock to, instead of the first.
    pub(in crate::store::redis) to: Option<&'a LeaseId>,
}

impl<'a> Release<'a> {
    /// A release whose reply nobody reads.
    pub(in crate::store::redis) fn unheard(lease: &'a LeaseSpec) -> Self {
        Self {
            lease,
            dequeue: None,
            is_heard: false,
            to: None,
        }
    }

    fn call_of_reader(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, &self.lease.name);
        ScriptCall::new(&at.scripts().shared.release)
            .key(at.keys.lock(name))
            .keys(at.keys.queue(name))
            .keys(at.counter_keys(name))
            .key(at.keys.neighbour(name, "readers"))
            .arg(&lease.id)
            .arg(self.dequeue.map_or("", LeaseId::as_str))
    }
}

impl Release<'_> {
    fn call_of_permits(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, &self.lease.name);
        ScriptCall::new(&at.scripts().permits.release)
            .key(at.keys.lock(name))
            .keys(at.keys.queue(name))
            .keys(at.keys.permits(name))
            .arg(&lease.id)
            .arg(self.dequeue.map_or("", LeaseId::as_str))
    }
}

impl Operation for Release<'_> {
    type Reply = ReleaseReply;

    fn name(&self) -> &LockName {
        &self.lease.name
    }

    /// Most releases need five keys and one argument.
    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (lease, name) = (self.lease, self.name());
        match lease.mode {
            Mode::Exclusive => {}
            Mode::Shared => return self.call_of_reader(at),
            Mode::Permit => return self.call_of_permits(at),
        }
        let mut call = ScriptCall::new(&at.scripts().exclusive.release)
            .key(at.keys.lock(name))
            .keys(at.keys.queue(name))
            .arg(&lease.id);
        let is_native = at.keys.layout == Layout::Native;
        if is_native || lease.has_meta || lease.last_fence.is_some() {
            call = call.keys(at.counter_keys(name));
        }
        if lease.has_meta {
            call = call.key(at.keys.neighbour(name, "meta"));
        }
        if !is_native {
            let foreign = !lease.id.is_tenure();
            call = call.arg(at.keys.redisson_channel(name));
            call = call.arg(if foreign { "foreign" } else { "" });
        }
        let must_offer = is_native && !self.is_heard;
        let names = self.to.is_some();
        if self.dequeue.is_some() || lease.last_fence.is_some() || must_offer || names {
            let last_fence = lease.last_fence.map(|fence| fence.get().to_string());
            call = call.arg(self.dequeue.map_or("", LeaseId::as_str));
            call = call.arg(last_fence.unwrap_or_default());
        }
        if must_offer {
            call = call.arg("offer");
        } else if names && is_native {
            call = call.arg("");
        }
        call.args(self.to.map(LeaseId::to_string))
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<ReleaseReply, Rejection>, Failure> {
        released(reply.layout, self.name(), &reply.value, reply.sent_at).map(Ok)
    }
}
