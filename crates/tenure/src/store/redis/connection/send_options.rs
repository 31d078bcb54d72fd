//! How a request is sent, and how long its sender waits for the reply.

use crate::moment::Moment;

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendOptions {
    pub(super) wait: ReplyWait,
    /// The latest moment by the server's clock at which the request may take effect; 0 if any.
    pub(in crate::store::redis) latest_us: u64,
    /// Whether the keys are in a slot that is migrating to this node.
    pub(super) asking: bool,
}

/// How long a sender waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyWait {
    /// Until this moment. Needs the timers of the engine.
    Until(Moment),
    /// Until the connection times out. Needs no timer, so it works on any executor.
    ResponseTimeout,
}

impl SendOptions {
    /// From the engine: waits until this moment.
    pub(crate) fn until(limit: Moment) -> Self {
        Self {
            wait: ReplyWait::Until(limit),
            latest_us: 0,
            asking: false,
        }
    }

    /// From the caller's own task: waits until the connection times out.
    pub(crate) fn on_caller() -> Self {
        Self {
            wait: ReplyWait::ResponseTimeout,
            latest_us: 0,
            asking: false,
        }
    }

    pub(crate) fn latest(self, latest_us: u64) -> Self {
        Self { latest_us, ..self }
    }

    pub(in crate::store::redis) fn asking(self, asking: bool) -> Self {
        Self { asking, ..self }
    }
}
