//! Reads who holds a lock. Changes nothing.

use std::collections::BTreeMap;

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use super::reply::{fence, not_a_lock, number, pairs, slots, time_left};
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::value::Value;
use crate::store::{Failure, LockState, READERS_SHOWN, Readers};

pub(in crate::store::redis) struct Inspect<'a>(pub(in crate::store::redis) &'a LockName);

impl Operation for Inspect<'_> {
    type Reply = Option<LockState>;

    fn name(&self) -> &LockName {
        self.0
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        ScriptCall::new(&at.scripts().look)
            .key(at.keys.lock(self.0))
            .key(at.keys.counter(self.0))
            .key(at.keys.neighbour(self.0, "meta"))
            .key(at.keys.fence(self.0))
            .key(at.keys.neighbour(self.0, "readers"))
            .key(at.keys.neighbour(self.0, "permits"))
            .key(at.keys.neighbour(self.0, "slots"))
            .arg(READERS_SHOWN)
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<Option<LockState>, Rejection>, Failure> {
        let parts = reply.value.as_array();
        let parts = parts.ok_or_else(|| Failure::refused(reply.value.unexpected("look.lua")))?;
        let part = |i: usize| parts.get(i).unwrap_or(&Value::Nil);
        match part(0).as_str() {
            Some("free") => return Ok(Ok(None)),
            Some("type") => return Err(not_a_lock(reply.layout, self.0, part(1))),
            _ => {}
        }
        let id = LeaseId::new(part(1).lossy().unwrap_or_default());
        let mut meta = pairs(part(4));
        if meta.remove("lease").as_deref() != Some(id.as_str()) {
            // Metadata of an earlier lease does not count.
            meta = BTreeMap::new();
        }
        Ok(Ok(Some(LockState {
            remaining: time_left(part(2)),
            fence: id.phase().or(fence(part(3)).filter(|_| id.is_tenure())),
            meta,
            readers: readers(part(5), part(6)),
            id,
        })))
    }
}

/// How many readers share a lock, then the ids of some; and the slots of each if they have permits.
fn readers(reply: &Value, held_slots: &Value) -> Readers {
    let Some((count, shown)) = reply.as_array().and_then(<[_]>::split_first) else {
        return Readers::default();
    };
    let id = |value: &Value| value.lossy().map(LeaseId::new);
    let held_slots = held_slots.as_array().unwrap_or_default();
    let with_slots = shown.iter().zip(held_slots);
    Readers {
        count: number(count).unwrap_or_default(),
        shown: shown.iter().filter_map(id).collect(),
        slots: with_slots
            .filter_map(|(lease, held)| Some((id(lease)?, slots(held)?)))
            .collect(),
    }
}
