//! Acquires several locks if all of them are free.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::{fence, not_a_lock, number, time_left};
use crate::layout::Layout;
use crate::lease::{Fence, LeaseId};
use crate::name::LockName;
use crate::store::redis::script::ACQUIRE_SEVERAL;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Attempt, Busy, Failure, SeveralReply};

/// Attempts for locks of one server, or of one slot of a cluster, with the same settings. At least
/// one.
pub(in crate::store::redis) struct AcquireSeveral<'a>(pub(in crate::store::redis) &'a [Attempt]);

impl AcquireSeveral<'_> {
    fn first(&self) -> &Attempt {
        &self.0[0]
    }

    /// The lock with this number in the reply. They count from one.
    fn numbered(&self, number: u64) -> Option<(usize, &Attempt)> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        Some((at, self.0.get(at)?))
    }

    fn read_grant(&self, value: &Value, parts: &[Value]) -> Result<Vec<Fence>, Failure> {
        let fences: Option<Vec<_>> = parts.iter().map(fence).collect();
        fences
            .filter(|fences| fences.len() == self.0.len())
            .ok_or_else(|| unexpected(value))
    }
}

impl Operation for AcquireSeveral<'_> {
    type Reply = SeveralReply;

    /// Any of them: all are on one node.
    fn name(&self) -> &LockName {
        &self.first().held.name
    }

    fn replicas(&self) -> u32 {
        self.first().held.replicas
    }

    fn grants(&self) -> bool {
        true
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let Attempt { held, meta, .. } = self.first();
        let names = || self.0.iter().map(|attempt| &attempt.held.name);
        let [counter, _] = at.counter_keys(&held.name);
        let metadata = names().filter(|_| held.has_meta);
        let mut call = ScriptCall::new(&ACQUIRE_SEVERAL)
            .keys(names().map(|name| at.keys.lock(name)))
            .keys(names().map(|name| at.keys.counter(name)))
            .key(counter)
            .keys(metadata.map(|name| at.keys.neighbour(name, "meta")))
            .arg(self.0.len())
            .arg(held.ttl.as_millis())
            .arg(at.latest_us)
            .arg(&at.primary)
            .args(self.0.iter().map(|attempt| attempt.held.id.to_string()));
        for (field, value) in meta.iter() {
            call = call.arg(field).arg(value);
        }
        call
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<SeveralReply, Rejection>, Failure> {
        let value = &reply.value;
        let unexpected = || unexpected(value);
        let parts = value.as_array().ok_or_else(unexpected)?;
        let part = |i: usize| parts.get(i).ok_or_else(unexpected);
        let numbered = |i: usize| {
            let found = number(part(i)?).and_then(|number| self.numbered(number));
            found.ok_or_else(unexpected)
        };
        Ok(match part(0)?.as_str() {
            None => Ok(SeveralReply::Granted {
                fences: self.read_grant(value, parts)?,
                sent_at: reply.sent_at,
            }),
            Some("busy") => Ok(SeveralReply::Busy {
                at: numbered(1)?.0,
                busy: Busy {
                    ask_after: None,
                    holder: LeaseId::new(part(2)?.lossy().ok_or_else(unexpected)?),
                    remaining: time_left(part(3)?),
                },
            }),
            Some("late") => Err(Rejection::Late(number(part(1)?).ok_or_else(unexpected)?)),
            Some("master") => Err(Rejection::OtherPrimary),
            Some("type") => {
                let (_, attempt) = numbered(1)?;
                return Err(not_a_lock(Layout::Native, &attempt.held.name, part(2)?));
            }
            Some(_) => return Err(unexpected()),
        })
    }
}

fn unexpected(value: &Value) -> Failure {
    Failure::refused(value.unexpected("acquire_several.lua"))
}
