//! Requests to one node of a Redlock: vote for a lease, release it, repair it after the node has
//! forgotten it.

use std::sync::Arc;
use std::time::Duration;

use super::command::cmd;
use super::connection::{Connection, SendOptions};
use super::node_state::VOTE_DELAY_MIN;
use super::operation::{ReleaseVote, Repair, RequestVote};
use super::redis_store::RedisStore;
use super::script::{self, RedlockScripts};
use crate::layout::Layout;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Attempt, Busy, Failure, InFlight, LeaseSpec};

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
const QUARTER: Duration = Duration::from_millis(7_500);
const _: () = assert!(QUARTER.as_millis() * 4 == VOTE_DELAY_MIN.as_millis());
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

/// A vote request that was sent: what is in flight if its reply is lost, and the connection on
/// which a release must follow it.
#[derive(Clone)]
pub(crate) struct SentVote {
    pub(crate) connection: Arc<Connection>,
    pub(crate) in_flight: InFlight,
}

/// The reply of a node to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeReleaseReply {
    WasHeld,
    NotHeld,
}

impl RedisStore {
    /// The connection to this node for a request from the caller's own task.
    pub(crate) fn caller_connection(&self) -> Option<Arc<Connection>> {
        self.routes.any().ok()?.caller_connection()
    }

    /// The connection to this node that the engine drives, made if there is none.
    pub(crate) async fn connection(&self, limit: Moment) -> Result<Arc<Connection>, Failure> {
        self.routes.any()?.commands.connection(limit).await
    }

    /// The same, if there is one already.
    pub(crate) fn live_connection(&self) -> Option<Arc<Connection>> {
        self.routes.any().ok()?.commands.live()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// The address of this node, for messages.
    pub(crate) fn target(&self) -> String {
        let node = self.routes.any();
        node.map_or_else(|_| String::new(), |node| node.server.target.to_string())
    }

    /// Requests this node's vote. The request is sent when the future is first polled.
    pub(crate) fn vote(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        attempt: &Attempt,
        (ballot, bounds): (Ballot, ClockBounds),
    ) -> (
        SentVote,
        impl Future<Output = Result<Vote, Failure>> + Send + use<>,
    ) {
        let latest_us = connection.server_us(self.clock.now() + self.response_timeout);
        let sent = SentVote {
            in_flight: connection.in_flight(latest_us),
            connection: Arc::clone(&connection),
        };
        let request = RequestVote {
            attempt: attempt.clone(),
            ballot,
            bounds,
        };
        let (store, asked_at) = (Arc::clone(self), self.clock.now());
        let voting = async move {
            let vote = store.perform_on_caller(&connection, &request, latest_us);
            let vote = vote.await?;
            if let Vote::Far(server_us) = vote {
                // We assumed a clock ahead of its real one, or it was set back.
                connection.set_clock(asked_at, server_us);
            }
            Ok(vote)
        };
        (sent, voting)
    }

    /// Releases on this node: only the vote for this block, or whatever the node has for this
    /// lease. Publishes to waiters if `notify`.
    pub(crate) fn release_on_node(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        lease: &LeaseSpec,
        ballot: Option<Ballot>,
        notify: bool,
    ) -> impl Future<Output = Result<NodeReleaseReply, Failure>> + Send + use<> {
        let release = ReleaseVote {
            lease: lease.clone(),
            ballot,
            notify,
        };
        let store = Arc::clone(self);
        async move { store.perform_on_caller(&connection, &release, 0).await }
    }

    /// How many processes are subscribed on this node.
    pub(crate) async fn listeners(&self, name: &LockName, limit: Moment) -> Result<u64, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.connection(limit).await?;
        let mut command = cmd("PUBSUB");
        command.arg("NUMSUB").arg(name.neighbour("wake"));
        let reply = connection.run(&command, SendOptions::until(limit)).await?;
        let count = reply.as_array().and_then(|pair| pair.get(1)?.as_int());
        Ok(count
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0))
    }

    /// The server's clock, in microseconds.
    pub(crate) async fn server_clock(
        &self,
        connection: &Connection,
        limit: Moment,
    ) -> Result<u64, Failure> {
        let limit = self.command_limit(limit);
        let options = SendOptions::until(limit);
        let time = connection.run(&cmd("TIME"), options).await?;
        time.as_server_time_us()
            .ok_or_else(|| Failure::refused(time.unexpected("TIME")))
    }

    /// Offers a lease again to a node that has forgotten it. True if the node has it now.
    pub(crate) async fn repair(
        &self,
        connection: &Connection,
        lease: &LeaseSpec,
        last_fence: u64,
        latest_us: u64,
    ) -> Result<bool, Failure> {
        let repair = Repair { lease, last_fence };
        let options = SendOptions::on_caller().latest(latest_us);
        let repaired = self.perform_on(connection, &repair, options).await?;
        // If its clock was set forward, the next repair will be in time.
        Ok(repaired.unwrap_or(false))
    }
}

impl Layout {
    pub(super) fn redlock_scripts(self) -> &'static RedlockScripts {
        match self {
            Self::Native => &script::REDLOCK_NATIVE,
            Self::Redisson => &script::REDLOCK_REDISSON,
        }
    }
}
