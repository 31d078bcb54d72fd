//! Reads parts of replies that several scripts have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::lease::{Fence, LeaseId, believed_until};
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::redis::value::Value;
use crate::store::{Failure, NotHeld, OfferedGrant, ReleaseReply, Slots};

/// What release.lua found, and turn.lua if it released. The call was sent at `sent_at`.
pub(in crate::store::redis) fn released(
    layout: Layout,
    name: &LockName,
    reply: &Value,
    sent_at: Moment,
) -> Result<ReleaseReply, Failure> {
    let parts = match reply {
        Value::Array(parts) => parts.as_slice(),
        whole => std::slice::from_ref(whole),
    };
    let part = |i: usize| parts.get(i).unwrap_or(&Value::Nil);
    if part(0).as_str() == Some("type") {
        return Err(not_a_lock(layout, name, part(1)));
    }
    match part(0).as_int() {
        Some(1) => Ok(ReleaseReply::WasHeld {
            offered_to: part(1).lossy().map(LeaseId::new),
        }),
        Some(2) => {
            let passed = passed(part(1), part(2), sent_at);
            passed.ok_or_else(|| Failure::refused(reply.unexpected("release.lua")))
        }
        Some(_) => Ok(ReleaseReply::NotHeld),
        None => Err(Failure::refused(reply.unexpected("release.lua"))),
    }
}

/// A waiter of the same client has the lock now, for its whole ttl.
fn passed(waiter: &Value, told: &Value, sent_at: Moment) -> Option<ReleaseReply> {
    let to = LeaseId::new(waiter.as_str()?);
    let grant = OfferedGrant {
        fence: fence(told)?,
        written_at: sent_at,
        until: believed_until(sent_at, to.ttl()?),
    };
    Some(ReleaseReply::Passed { to, grant })
}

pub(super) fn not_held(holder: &Value) -> NotHeld {
    NotHeld {
        taken_by: holder.lossy().map(LeaseId::new),
    }
}

pub(super) fn number(value: &Value) -> Option<u64> {
    u64::try_from(value.as_int()?).ok()
}

pub(super) fn fence(value: &Value) -> Option<Fence> {
    number(value).map(Fence::new)
}

/// The numbers of slots, separated by commas.
pub(super) fn slots(value: &Value) -> Option<Slots> {
    let numbers = value.as_str()?.split(',');
    numbers.map(|number| number.parse().ok()).collect()
}

pub(in crate::store::redis) fn pairs(reply: &Value) -> BTreeMap<String, String> {
    let values = reply.as_array().unwrap_or_default();
    let chunks = values.chunks_exact(2);
    chunks
        .filter_map(|pair| Some((pair[0].lossy()?, pair[1].lossy()?)))
        .collect()
}

/// The reply to `PTTL`; `None` for a key without expiry.
pub(in crate::store::redis) fn time_left(pttl: &Value) -> Option<Duration> {
    let ms = pttl.as_int()?;
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The error if the key is not a lock: what was found, and what to do about it.
pub(super) fn not_a_lock(layout: Layout, name: &LockName, found: &Value) -> Failure {
    let (found, remedy) = match (found.as_str(), layout) {
        (Some("hash"), Layout::Native) => (
            "a hash, perhaps a lock of Redisson",
            "use the layout `redisson`, or another name",
        ),
        (Some("string"), Layout::Redisson) => (
            "a string, perhaps a lock of a library other than Redisson",
            "use the layout `native`, or another name",
        ),
        (Some("rwlock"), _) => (
            "a read-write lock of Redisson",
            "a plain lock would not exclude it: use another name",
        ),
        (found, _) => (
            found.unwrap_or("something"),
            "it is not a lock: use another name",
        ),
    };
    Failure::refused(Error::new(
        ErrorKind::NotALock,
        format!("cannot lock `{name}`: the key holds {found}; {remedy}"),
    ))
}
