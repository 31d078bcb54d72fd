//! Requests to one node of a Redlock: vote for a lease, release it, repair it after the node has
//! forgotten it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::command::cmd;
use super::connection::{Connection, SendOptions};
use super::node_state::VOTE_DELAY_MIN;
use super::operation::{ReleaseVote, Repair};
use super::redis_store::RedisStore;
use super::request_queue::Entry;
use super::script::{self, RedlockScripts};
use super::vote_request::{
    Ballot, ClockBounds, Delivery, NodeReleaseReply, QUARTER, ReleaseRequest, VoteEntry,
    VoteReleaseEntry, VoteRequest,
};
use crate::layout::Layout;
use crate::lease::ClientId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, InFlight, LeaseSpec};

const _: () = assert!(QUARTER.as_millis() * 4 == VOTE_DELAY_MIN.as_millis());

/// A vote request that was sent: what is in flight if its reply is lost, and the connection on
/// which a release must follow it.
#[derive(Clone)]
pub(crate) struct SentVote {
    pub(crate) connection: Arc<Connection>,
    pub(crate) in_flight: InFlight,
}

impl RedisStore {
    /// Gives the client channels of its own on this node, so that a waiter can be told alone.
    pub(crate) fn listen_as(&self, client: ClientId) {
        self.channels.set_own(client);
    }

    /// A node of a Redlock stores the fence of each lock: a key that is refused is not a counter that
    /// all locks share.
    pub(crate) fn has_fence_for_each_lock(&self) {
        if let Ok(node) = self.routes.any() {
            node.server.wants_one_slot();
        }
    }

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

    /// Requests the vote of this node, which has this index, together with the requests of other
    /// callers. What is in flight begins before the request may be sent: a round that ends at any
    /// moment knows what to take back.
    pub(crate) fn vote(
        &self,
        connection: Arc<Connection>,
        (node, request): (usize, Arc<dyn VoteRequest>),
        (bounds, now): (ClockBounds, Moment),
    ) -> SentVote {
        let latest_us = connection.server_us(now + self.response_timeout);
        let in_flight = connection.in_flight(latest_us);
        let entry = VoteEntry {
            request,
            node,
            keys: self.keys.clone(),
            bounds,
            in_flight,
            delivery: Delivery::Together,
            started_at: connection.start_call().0,
        };
        connection.response_watch().expect(now);
        connection.combine(Entry::Vote(entry));
        SentVote {
            connection,
            in_flight,
        }
    }

    /// Releases on this node, which has this index, together with what other callers release. A
    /// vote that is no longer wanted is on its way by then, or will never be sent.
    pub(crate) fn release_vote(
        &self,
        connection: &Arc<Connection>,
        node: usize,
        request: Arc<dyn ReleaseRequest>,
    ) {
        let entry = VoteReleaseEntry {
            request,
            node,
            keys: self.keys.clone(),
            delivery: Delivery::Together,
            started_at: connection.start_call().0,
        };
        connection.response_watch().expect(self.clock.now());
        connection.combine(Entry::VoteRelease(entry));
    }

    /// Releases on this node: only the vote for this block, or whatever the node has for this
    /// lease. Publishes nothing.
    pub(crate) async fn release_on_node(
        &self,
        connection: &Connection,
        lease: &LeaseSpec,
        ballot: Option<Ballot>,
    ) -> Result<NodeReleaseReply, Failure> {
        // Votes that are no longer wanted are on their way, or will not be sent.
        connection.queue().settle();
        let release = ReleaseVote {
            lease,
            ballot,
            notify: false,
            place: None,
        };
        self.perform_on_caller(connection, &release, 0).await
    }

    /// How many processes are subscribed on this node.
    pub(crate) async fn listeners(&self, name: &LockName, limit: Moment) -> Result<u64, Failure> {
        let limit = self.command_limit(limit);
        let connection = self.connection(limit).await?;
        let mut command = cmd("PUBSUB");
        command.arg("NUMSUB").arg(self.keys.wake_channel(name));
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
        meta: &BTreeMap<String, String>,
        latest_us: u64,
    ) -> Result<bool, Failure> {
        let repair = Repair {
            lease,
            last_fence,
            meta,
        };
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
