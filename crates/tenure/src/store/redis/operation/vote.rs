//! Requests the vote of one node of a Redlock.

use super::description::{Operation, Rejection, ScriptReply, ServerContext};
use std::time::Duration;

use super::reply::{not_a_lock, number, time_left};
use crate::layout::Layout;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::redis::node_state::VOTE_DELAY_MIN;
use crate::store::redis::script_call::ScriptCall;
use crate::store::redis::vote_request::{Ballot, ClockBounds, OFFER_PREFIX, Vote, WAITERS};
use crate::store::{Attempt, Busy, Failure};

/// How long a waiter sleeps at most for each that is ahead of it, and once more.
const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// How many are taken to be ahead of it if the node has no list.
const AHEAD_UNKNOWN: u64 = 7;

pub(in crate::store::redis) struct RequestVote<'a> {
    pub(in crate::store::redis) attempt: &'a Attempt,
    pub(in crate::store::redis) ballot: Ballot,
    pub(in crate::store::redis) bounds: ClockBounds,
}

impl RequestVote<'_> {
    /// Whether it also joins the waiters of the node if the lock is busy. Not in Redisson's layout,
    /// where waiters of other libraries would never be first.
    fn waits(&self, layout: Layout) -> bool {
        self.attempt.queue && layout == Layout::Native
    }

    /// How long a waiter sleeps at most: the longer, the more are ahead of it in the node's list. So if
    /// some of them hang, the next one asks soon, and a long list costs little.
    fn ask_after(&self, reply: &ScriptReply) -> Option<Duration> {
        let parts = reply.value.as_array().unwrap_or_default();
        let ahead = parts.get(4).and_then(number).unwrap_or(AHEAD_UNKNOWN);
        let turns = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
        let waits = self.waits(reply.layout) && !bug(Bug::RedlockWaiterSleeps);
        waits.then(|| ASK_INTERVAL.saturating_mul(turns))
    }
}

impl Operation for RequestVote<'_> {
    type Reply = Vote;

    fn name(&self) -> &LockName {
        &self.attempt.held.name
    }

    fn call(&self, at: &ServerContext) -> ScriptCall<'static> {
        let (held, bounds) = (&self.attempt.held, &self.bounds);
        let (waits, scripts) = (self.waits(at.keys.layout), at.redlock_scripts());
        let script = if waits { &scripts.wait } else { &scripts.vote };
        let mut call = ScriptCall::new(script)
            .key(at.keys.lock(&held.name))
            .key(at.keys.fence(&held.name))
            .keys(waits.then(|| at.keys.neighbour(&held.name, WAITERS)))
            .keys(held.has_meta.then(|| at.keys.neighbour(&held.name, "meta")))
            .keys((held.ttl > VOTE_DELAY_MIN).then(|| at.keys.longest_ttl()))
            .arg(&held.id)
            .arg(held.ttl.as_millis())
            .arg(at.latest_us)
            .arg(self.ballot.first)
            .arg(self.ballot.fences)
            .arg(bounds.below.as_micros())
            .arg(bounds.above.as_micros())
            .arg(if bounds.always { "always" } else { "" })
            .args(waits.then(|| self.ballot.first.to_string()));
        if held.has_meta {
            for (field, value) in self.attempt.meta.iter() {
                call = call.arg(field).arg(value);
            }
        }
        call
    }

    fn read(&self, reply: &ScriptReply) -> Result<Result<Vote, Rejection>, Failure> {
        let value = &reply.value;
        let unexpected = || Failure::refused(value.unexpected("vote.lua"));
        if value.as_int() == Some(1) {
            return Ok(Ok(Vote::Granted));
        }
        let parts = value.as_array().ok_or_else(unexpected)?;
        let part = |i: usize| parts.get(i).ok_or_else(unexpected);
        let number = |i: usize| number(part(i)?).ok_or_else(unexpected);
        Ok(match part(0)?.as_str() {
            Some("busy") => {
                let holder = part(1)?.lossy().ok_or_else(unexpected)?;
                let busy = Busy {
                    // It is about to be the waiter's to whom it was offered.
                    holder: LeaseId::new(holder.strip_prefix(OFFER_PREFIX).unwrap_or(&holder)),
                    remaining: time_left(part(2)?),
                    ask_after: self.ask_after(reply),
                };
                Ok(Vote::Busy(busy, number(3)?))
            }
            Some("stale") => Ok(Vote::Stale(number(1)?)),
            Some("far") => Ok(Vote::Far(number(1)?)),
            Some("late") => Err(Rejection::Late(number(1)?)),
            Some("type") => return Err(not_a_lock(reply.layout, self.name(), part(1)?)),
            _ => return Err(unexpected()),
        })
    }
}
