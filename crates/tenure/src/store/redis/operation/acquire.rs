//! Acquires a lock if it is free, or joins its queue.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::{fence, not_a_lock, number, slots, time_left};
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::{
    AcquireReply, Attempt, Busy, Failure, PermitRequest, Slots, Wish, a_lock, other_limit,
};

pub(in crate::store::redis) struct Acquire<'a>(pub(in crate::store::redis) &'a Attempt);

impl Acquire<'_> {
    /// The lock is shared with other readers, so the script needs all keys.
    fn call_to_share(&self, at: &ServerContext) -> ScriptCall<'static> {
        let Attempt { held, queue, .. } = self.0;
        let name = &held.name;
        ScriptCall::new(&at.scripts().shared.acquire)
            .key(at.keys.lock(name))
            .keys(at.counter_keys(name))
            .keys(at.keys.queue(name))
            .key(at.keys.neighbour(name, "readers"))
            .arg(&held.id)
            .arg(held.ttl.as_millis())
            .arg(at.latest_us)
            .arg(1)
            .arg(if *queue { "queue" } else { "" })
            .arg(&at.primary)
    }
}

impl Acquire<'_> {
    /// The script looks who is next, so it needs all keys.
    fn call_in_order(&self, at: &ServerContext) -> ScriptCall<'static> {
        let Attempt {
            held, meta, queue, ..
        } = self.0;
        let name = &held.name;
        let mut call = ScriptCall::new(&at.scripts().fair_acquire)
            .key(at.keys.lock(name))
            .keys(at.counter_keys(name))
            .keys(at.keys.queue(name))
            .arg(&held.id)
            .arg(held.ttl.as_millis())
            .arg(at.latest_us)
            .arg(1)
            .arg(if *queue { "queue" } else { "" })
            .arg(&at.primary);
        if held.has_meta {
            call = call.key(at.keys.neighbour(name, "meta"));
            for (field, value) in meta.iter() {
                call = call.arg(field).arg(value);
            }
        }
        call
    }

    fn call_for_permits(&self, permits: PermitRequest, at: &ServerContext) -> ScriptCall<'static> {
        let Attempt { held, queue, .. } = self.0;
        let name = &held.name;
        ScriptCall::new(&at.scripts().permits.acquire)
            .key(at.keys.lock(name))
            .keys(at.counter_keys(name))
            .keys(at.keys.queue(name))
            .keys(at.keys.permits(name))
            .arg(&held.id)
            .arg(held.ttl.as_millis())
            .arg(at.latest_us)
            .arg(permits.limit)
            .arg(permits.count)
            .arg(u8::from(permits.overtakes))
            .arg(if *queue { "queue" } else { "" })
            .arg(&at.primary)
    }
}

impl Operation for Acquire<'_> {
    type Reply = AcquireReply;

    fn name(&self) -> &LockName {
        &self.0.held.name
    }

    fn replicas(&self) -> u32 {
        self.0.held.replicas
    }

    fn grants(&self) -> bool {
        true
    }

    /// Most attempts need three keys and four arguments.
    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let Attempt {
            held,
            meta,
            fences,
            queue,
            wish,
        } = self.0;
        let name = &held.name;
        if held.mode == Mode::Shared {
            return self.call_to_share(at);
        }
        match *wish {
            Wish::Permits(permits) => return self.call_for_permits(permits, at),
            Wish::InOrder => return self.call_in_order(at),
            Wish::Lock => {}
        }
        let mut call = ScriptCall::new(&at.scripts().exclusive.acquire)
            .key(at.keys.lock(name))
            .keys(at.counter_keys(name))
            .arg(&held.id)
            .arg(held.ttl.as_millis())
            .arg(at.latest_us)
            .arg(fences);
        let has_primary = !at.primary.is_empty();
        if *queue || held.has_meta {
            call = call.keys(at.keys.queue(name));
        }
        if *queue || held.has_meta || has_primary {
            call = call.arg(if *queue { "queue" } else { "" });
        }
        if held.has_meta || has_primary {
            call = call.arg(&at.primary);
        }
        if held.has_meta {
            call = call.key(at.keys.neighbour(name, "meta"));
        }
        for (field, value) in meta.iter() {
            call = call.arg(field).arg(value);
        }
        call
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<AcquireReply, Rejection>, Failure> {
        let (value, sent_at) = (&reply.value, reply.sent_at);
        let unexpected = || Failure::refused(value.unexpected("acquire.lua"));
        if value.as_int().is_some() {
            let fence = fence(value).ok_or_else(unexpected)?;
            return Ok(Ok(AcquireReply::Granted {
                fence,
                sent_at,
                slots: Slots::default(),
            }));
        }
        let parts = value.as_array().ok_or_else(unexpected)?;
        let part = |i: usize| parts.get(i).ok_or_else(unexpected);
        if part(0)?.as_int().is_some() {
            return Ok(Ok(AcquireReply::Granted {
                fence: fence(part(0)?).ok_or_else(unexpected)?,
                sent_at,
                slots: slots(part(1)?).ok_or_else(unexpected)?,
            }));
        }
        Ok(match part(0)?.as_str() {
            Some("busy") => Ok(AcquireReply::Busy(Busy {
                ask_after: None,
                holder: LeaseId::new(part(1)?.lossy().ok_or_else(unexpected)?),
                remaining: time_left(part(2)?),
            })),
            Some("late") => Err(Rejection::Late(number(part(1)?).ok_or_else(unexpected)?)),
            Some("master") => Err(Rejection::OtherPrimary),
            Some("type") => return Err(not_a_lock(reply.layout, self.name(), part(1)?)),
            Some("limit") => {
                let limit = number(part(1)?).and_then(|limit| u32::try_from(limit).ok());
                return Err(other_limit(self.0, limit.ok_or_else(unexpected)?));
            }
            Some("lock") => {
                let holder = LeaseId::new(part(1)?.lossy().ok_or_else(unexpected)?);
                return Err(a_lock(self.name(), &holder));
            }
            _ => return Err(unexpected()),
        })
    }
}
