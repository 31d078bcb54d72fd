//! Operations on a lock: which script runs, with which keys and arguments, and what its reply means.
//!
//! An operation knows nothing of connections: [`perform`](super::perform) sends it, alone or in a
//! batch, from the engine or from a caller's own task.

pub(super) use self::acquire::Acquire;
pub(super) use self::acquire_several::AcquireSeveral;
pub(super) use self::adopt::Adopt;
pub(super) use self::arrive::Arrive;
pub(super) use self::change_mode::ChangeMode;
pub(super) use self::description::{Operation, Rejection, ScriptReply, ServerContext};
pub(super) use self::heartbeat::Heartbeat;
pub(super) use self::inspect::Inspect;
pub(super) use self::once::TakeRunStep;
pub(super) use self::proclaim::Proclaim;
pub(super) use self::release::Release;
pub(super) use self::release_vote::ReleaseVote;
pub(super) use self::renew::Renew;
pub(super) use self::repair::Repair;
pub(super) use self::reply::{pairs, time_left};
pub(super) use self::resize::Resize;
pub(super) use self::turn::Turn;
pub(super) use self::vote::RequestVote;
pub(super) use self::waiters::Waiters;

mod acquire;
mod acquire_several;
mod adopt;
mod arrive;
mod change_mode;
mod description;
mod heartbeat;
mod inspect;
mod once;
mod proclaim;
mod release;
mod release_vote;
mod renew;
mod repair;
pub(super) mod reply;
mod resize;
mod turn;
mod vote;
mod waiters;
