//! Parses and checks the replies of the scripts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::request::{Rejection, ScriptReply};
use super::value::Value;
use super::vote::{NodeReleaseReply, Vote};
use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{
    AcquireReply, Busy, Failure, LockState, NotHeld, ReleaseReply, RenewReply, TurnReply,
};

/// The reply of acquire.lua; an inner `Err` if it changed nothing and can be retried.
pub(super) fn attempt(
    layout: Layout,
    name: &LockName,
    answer: &ScriptReply,
) -> Result<Result<AcquireReply, Rejection>, Failure> {
    let (reply, sent_at) = (&answer.reply, answer.sent_at);
    let unexpected = || Failure::refused(reply.unexpected("acquire.lua"));
    if let Some(fence) = reply.as_int() {
        let fence = u64::try_from(fence).map_err(|_| unexpected())?;
        let fence = Fence::new(fence);
        return Ok(Ok(AcquireReply::Granted { fence, sent_at }));
    }
    let parts = reply.as_array().ok_or_else(unexpected)?;
    let part = |i: usize| parts.get(i).ok_or_else(unexpected);
    let number = |i: usize| {
        let number = part(i)?
            .as_int()
            .and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(unexpected)
    };
    Ok(match part(0)?.as_str() {
        Some("busy") => Ok(AcquireReply::Busy(Busy {
            holder: LeaseId::new(part(1)?.lossy().ok_or_else(unexpected)?),
            remaining: time_left(part(2)?),
        })),
        Some("late") => Err(Rejection::Late(number(1)?)),
        Some("master") => Err(Rejection::OtherPrimary),
        Some("type") => return Err(not_a_lock(layout, name, part(1)?)),
        _ => return Err(unexpected()),
    })
}

/// The reply of vote.lua; `Err` with the server's time if the request came too late.
pub(super) fn vote(
    layout: Layout,
    name: &LockName,
    reply: &Value,
) -> Result<Result<Vote, u64>, Failure> {
    let unexpected = || Failure::refused(reply.unexpected("vote.lua"));
    if reply.as_int() == Some(1) {
        return Ok(Ok(Vote::Granted));
    }
    let parts = reply.as_array().ok_or_else(unexpected)?;
    let part = |i: usize| parts.get(i).ok_or_else(unexpected);
    let number = |i: usize| {
        let number = part(i)?.as_int();
        number
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(unexpected)
    };
    Ok(match part(0)?.as_str() {
        Some("busy") => {
            let busy = Busy {
                holder: LeaseId::new(part(1)?.lossy().ok_or_else(unexpected)?),
                remaining: time_left(part(2)?),
            };
            Ok(Vote::Busy(busy, number(3)?))
        }
        Some("stale") => Ok(Vote::Stale(number(1)?)),
        Some("far") => Ok(Vote::Far(number(1)?)),
        Some("late") => Err(number(1)?),
        Some("type") => return Err(not_a_lock(layout, name, part(1)?)),
        _ => return Err(unexpected()),
    })
}

/// The reply of a Redlock node's release.lua.
pub(super) fn node_release(reply: &Value) -> Result<NodeReleaseReply, Failure> {
    let parts = reply.as_array().unwrap_or_default();
    match parts.first().and_then(Value::as_int) {
        Some(1) => Ok(NodeReleaseReply::WasHeld),
        Some(_) => Ok(NodeReleaseReply::NotHeld),
        None => Err(Failure::refused(reply.unexpected("release.lua"))),
    }
}

/// The reply of adopt.lua; an inner `Err` if it changed nothing and can be retried.
pub(super) fn adoption(answer: &ScriptReply) -> Result<Result<RenewReply, Rejection>, Failure> {
    let (reply, sent_at) = (&answer.reply, answer.sent_at);
    let unexpected = || Failure::refused(reply.unexpected("adopt.lua"));
    let parts = reply.as_array().ok_or_else(unexpected)?;
    let what = parts.first().and_then(Value::as_str);
    let second = parts.get(1);
    Ok(match what.ok_or_else(unexpected)? {
        "adopted" => Ok(RenewReply::Until { sent_at }),
        "gone" => Ok(RenewReply::NotHeld(NotHeld {
            taken_by: second.and_then(Value::lossy).map(LeaseId::new),
        })),
        "late" => {
            let time = second.and_then(Value::as_int);
            let time = time.and_then(|time| u64::try_from(time).ok());
            Err(Rejection::Late(time.ok_or_else(unexpected)?))
        }
        "master" => Err(Rejection::OtherPrimary),
        _ => return Err(unexpected()),
    })
}

pub(super) fn release(
    layout: Layout,
    name: &LockName,
    reply: &Value,
) -> Result<ReleaseReply, Failure> {
    let unexpected = || Failure::refused(reply.unexpected("release.lua"));
    let parts = match reply {
        Value::Array(parts) => parts.as_slice(),
        whole => std::slice::from_ref(whole),
    };
    if parts.first().and_then(Value::as_str) == Some("type") {
        return Err(not_a_lock(
            layout,
            name,
            parts.get(1).unwrap_or(&Value::Nil),
        ));
    }
    let was_held = parts.first().and_then(Value::as_int);
    Ok(match was_held.ok_or_else(unexpected)? {
        1 => ReleaseReply::WasHeld {
            offered_to: parts.get(1).and_then(Value::lossy).map(LeaseId::new),
        },
        _ => ReleaseReply::NotHeld,
    })
}

pub(super) fn turn(
    layout: Layout,
    name: &LockName,
    sent_at: Moment,
    reply: &Value,
) -> Result<TurnReply, Failure> {
    match reply.as_int().and_then(|fence| u64::try_from(fence).ok()) {
        Some(fence) => {
            let fence = Fence::new(fence);
            Ok(TurnReply::Again { fence, sent_at })
        }
        None => release(layout, name, reply).map(TurnReply::Passed),
    }
}

pub(super) fn renewal(reply: &Value, sent_at: Moment) -> Result<RenewReply, Failure> {
    let parts = reply.as_array().unwrap_or_default();
    match parts.first().and_then(Value::as_int) {
        Some(1) => Ok(RenewReply::Until { sent_at }),
        Some(_) => Ok(RenewReply::NotHeld(NotHeld {
            taken_by: parts.get(1).and_then(Value::lossy).map(LeaseId::new),
        })),
        None => Err(Failure::refused(reply.unexpected("renew.lua"))),
    }
}

pub(super) fn inspect(
    layout: Layout,
    name: &LockName,
    reply: Value,
) -> Result<Option<LockState>, Failure> {
    let parts = reply.into_array("look.lua").map_err(Failure::refused)?;
    match parts.first().and_then(Value::as_str) {
        Some("free") => Ok(None),
        Some("type") => Err(not_a_lock(
            layout,
            name,
            parts.get(1).unwrap_or(&Value::Nil),
        )),
        _ => {
            let part = |i: usize| parts.get(i).unwrap_or(&Value::Nil);
            let fence = part(3).as_int().and_then(|fence| u64::try_from(fence).ok());
            let id = LeaseId::new(part(1).lossy().unwrap_or_default());
            let mut meta = pairs(part(4));
            // Metadata of an earlier lease does not count.
            let is_of_this_lease = meta.remove("lease").as_deref() == Some(id.as_str());
            Ok(Some(LockState {
                remaining: time_left(part(2)),
                fence: fence.filter(|_| id.is_tenure()).map(Fence::new),
                meta: if is_of_this_lease {
                    meta
                } else {
                    BTreeMap::new()
                },
                id,
            }))
        }
    }
}

pub(super) fn pairs(reply: &Value) -> BTreeMap<String, String> {
    let values = reply.as_array().unwrap_or_default();
    let chunks = values.chunks_exact(2);
    chunks
        .filter_map(|pair| Some((pair[0].lossy()?, pair[1].lossy()?)))
        .collect()
}

/// The reply to `PTTL`; `None` for a key without expiry.
pub(super) fn time_left(pttl: &Value) -> Option<Duration> {
    let ms = pttl.as_int()?;
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The error if the key is not a lock: what was found, and what to do about it.
fn not_a_lock(layout: Layout, name: &LockName, found: &Value) -> Failure {
    let (found, remedy) = match (found.as_str(), layout) {
        (Some("hash"), Layout::Native) => (
            "a hash, perhaps a lock of Redisson",
            "use the layout `redisson`, or another name",
        ),
        (Some("string"), Layout::Redisson) => (
            "a string, perhaps a lock of another library than Redisson",
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
