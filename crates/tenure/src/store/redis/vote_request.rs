//! Votes and releases on one node of a Redlock: what is asked and replied, and the requests that wait
//! for the next call.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::keys::Keys;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::store::{Attempt, Busy, Failure, InFlight, LeaseSpec};

/// The key of the clients that wait for a lock, next to the lock on each node. A hint only.
pub(super) const WAITERS: &str = "waiters";

/// What stands before the lease id of a waiter for whom a node keeps its vote.
pub(crate) const OFFER_PREFIX: &str = "tenure:offer:";

/// A block of fences that is proposed to all nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ballot {
    pub(crate) first: u64,
    pub(crate) fences: u32,
}

/// How far a block of fences may be from a node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockBounds {
    /// How far below it may begin, where the clock is checked.
    pub(super) below: Duration,
    /// How far above it may end.
    pub(super) above: Duration,
    /// Whether the clock is checked although a fence is stored.
    pub(super) always: bool,
}

impl ClockBounds {
    /// For a node that may have lost its last stored fence: its clock replaces it. The same
    /// for every client, and the model in `tests/ballot` shows that one step more of either is too
    /// much.
    pub(crate) const MAY_FORGET: Self = Self {
        below: QUARTER,
        above: QUARTER,
        always: true,
    };

    /// For a node that forgets nothing: its clock only guards against a client with a broken clock.
    pub(crate) const KEEPS_ALL: Self = Self {
        below: QUARTER.saturating_mul(2),
        above: DAY,
        always: false,
    };
}

/// A quarter of the shortest time for which a node that may have forgotten something has no vote.
pub(super) const QUARTER: Duration = Duration::from_millis(7_500);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Ballot {
    pub(crate) fn last(self) -> u64 {
        self.first + u64::from(self.fences) - 1
    }
}

/// The reply of a node to a ballot.
#[derive(Clone, Debug)]
pub(crate) enum Vote {
    Granted,
    /// Another lease has the lock there; and the fence above which the node would accept one.
    Busy(Busy, u64),
    /// The block must be above this fence.
    Stale(u64),
    /// The block is too far above this node's clock, which shows this.
    Far(u64),
}

/// A lease that asks for votes. One request for all nodes, so that none is copied for each.
pub(crate) trait VoteRequest: Send + Sync {
    fn attempt(&self) -> &Attempt;

    fn ballot(&self) -> Ballot;

    /// Whether the votes are still wanted. Once they are not, none is sent any more.
    fn is_wanted(&self) -> bool;

    /// A node's reply. Called once for each node that was asked, on the thread that reads the
    /// replies, unless the request was given up before it was sent.
    fn voted(&self, node: usize, vote: Result<Vote, Failure>);
}

/// The release of a lease, or of the votes for it. One request for all nodes.
pub(crate) trait ReleaseRequest: Send + Sync {
    fn lease(&self) -> &LeaseSpec;

    /// The block of fences of the votes to release; `None` for whatever a node has for this lease.
    fn ballot(&self) -> Option<Ballot>;

    /// Whether to publish to the waiters.
    fn notifies(&self) -> bool;

    /// A waiter of the same process, and what becomes of its place.
    fn place(&self) -> Option<&(LeaseId, PlaceAfter)>;

    /// A node's reply. Called once for each node that was asked, on the thread that reads the
    /// replies.
    fn released(&self, node: usize, reply: Result<NodeReleaseReply, Failure>);
}

/// What becomes of the place of a waiter whose process releases the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceAfter {
    /// Nobody waits there any more.
    Leave,
    /// It has had its turn, and is the last one now.
    Last,
}

/// The reply of a node to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeReleaseReply {
    WasHeld,
    /// It was held, and the next waiter was told.
    Offered,
    NotHeld,
}

/// One request for a vote.
pub(super) struct VoteEntry {
    pub(super) request: Arc<dyn VoteRequest>,
    /// The index of the node among those of the Redlock.
    pub(super) node: usize,
    pub(super) keys: Keys,
    pub(super) bounds: ClockBounds,
    /// What is in flight if the reply is lost.
    pub(super) in_flight: InFlight,
    pub(super) delivery: Delivery,
    /// When it was asked for; only if timings are wanted.
    pub(super) started_at: Option<Moment>,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Delivery {
    /// With others, if there are any.
    #[default]
    Together,
    /// By a call of its own: the one for all was refused.
    Alone,
    /// The same, with the text of the script.
    AloneByText,
}

/// What a server thinks of the scripts for several votes and releases.
#[derive(Default)]
pub(super) struct VoteScripts {
    pub(super) vote_all: BatchScript,
    pub(super) release_all: BatchScript,
}

/// What a server thinks of a script for several requests.
#[derive(Default)]
pub(super) struct BatchScript {
    /// Whether it does not know the script.
    pub(super) unknown: AtomicBool,
    /// Whether the user lacks a right that the script needs.
    pub(super) denied: AtomicBool,
}

/// One release.
pub(super) struct VoteReleaseEntry {
    pub(super) request: Arc<dyn ReleaseRequest>,
    /// The index of the node among those of the Redlock.
    pub(super) node: usize,
    pub(super) keys: Keys,
    pub(super) delivery: Delivery,
    /// When it was asked for; only if timings are wanted.
    pub(super) started_at: Option<Moment>,
}
