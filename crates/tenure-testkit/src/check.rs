//! Checks a history against the guarantees.
//!
//! | checker | checks that |
//! |---|---|
//! | [`exclusion`], [`permits`], [`slots`] | two clients never believed at once to hold one lock, nor more than the limit to have permits |
//! | [`fences`] | fences are unique and grow in real time |
//! | [`resource`] | a fenced resource lost no update, accepted no stale holder and refused no newest one |
//! | [`liveness`], [`immortal_keys`], [`orphans`] | after healing every lock can be acquired again and no key is left over |
//! | [`waits`] | no client waited for a free lock |
//! | [`order`] | who came first was served first |
//! | [`loss`] | a client that lost a lock noticed before the next client got it |
//!
//! Each returns the violations it found; [`assert_none`] fails the test if there are any.

mod exclusion;
mod fences;
mod grants;
mod holds;
mod liveness;
mod loss;
mod order;
mod resource;
mod violation;
mod waits;

pub use exclusion::{exclusion, permits, slots};
pub use fences::{FENCE_WENT_BACK, fences};
pub use holds::{Hold, holds};
pub use liveness::{immortal_keys, liveness, orphans};
pub use loss::loss;
pub use order::order;
pub use resource::resource;
pub use violation::{Violation, assert_none};
pub use waits::{Patience, waits};

/// Hand-made histories for the tests of the checkers.
#[cfg(test)]
mod testing {
    use crate::history::{Event, Fault, Mode, Op, Outcome};

    /// An event of `client` (its task and hold have the same number) on the lock `a`.
    pub(super) fn event(client: u64, op: Op, outcome: Outcome, call: u64, ret: u64) -> Event {
        Event {
            client,
            task: client,
            op,
            mode: Mode::Exclusive,
            lock: "a".into(),
            hold: client,
            call_ns: call,
            return_ns: ret,
            outcome,
            fence: None,
            believed_until_ns: None,
        }
    }

    pub(super) fn grant(client: u64, call: u64, ret: u64, until: u64) -> Event {
        Event {
            believed_until_ns: Some(until),
            ..event(client, Op::Acquire, Outcome::Granted, call, ret)
        }
    }

    pub(super) fn fenced(fence: u64, event: Event) -> Event {
        Event {
            fence: Some(fence),
            ..event
        }
    }

    pub(super) fn release(client: u64, call: u64, ret: u64) -> Event {
        event(client, Op::Release, Outcome::Released, call, ret)
    }

    pub(super) fn lost(client: u64, at: u64) -> Event {
        event(client, Op::Lost, Outcome::Done, at, at)
    }

    pub(super) fn fault(kind: &str, client: u64, start: u64, end: u64) -> Fault {
        Fault {
            kind: kind.into(),
            client: Some(client),
            start_ns: start,
            end_ns: end,
            took_effect: true,
        }
    }
}
