//! The release of a lease, or of votes that were not enough, on several nodes.
//!
//! Replies are counted where they are read, so a release wakes its caller once. What goes wrong on a
//! node is left to that node's own task, whether or not a caller still waits.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use super::RedlockShared;
use super::deferred_release::DeferredRelease;
use super::node::lock;
use super::round_request::RoundRequest;
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::pending_work::{Pending, PendingOne};
use crate::seeded::{Bug, bug};
use crate::store::redis::{
    Ballot, Connection, NodeReleaseReply, PlaceAfter, ReleaseRequest, SentVote,
};
use crate::store::{Failure, InFlight, LeaseSpec};

/// A release on several nodes.
pub(super) struct ReleaseRound {
    shared: Arc<RedlockShared>,
    lease: LeaseSpec,
    /// The votes to release; `None` for whatever the nodes have for this lease.
    ballot: Option<Ballot>,
    notifies: bool,
    place: Option<(LeaseId, PlaceAfter)>,
    /// Votes that may still arrive, unless the release follows them.
    votes: Vec<(usize, InFlight)>,
    /// When the lease has ended by itself.
    until: Moment,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: usize,
    replied: usize,
    held: usize,
    gone: usize,
    failure: Option<Failure>,
    caller: Option<Waker>,
    /// A shutdown waits for it, but not for a node that hangs.
    pending: Option<PendingOne>,
}

/// What the nodes have replied.
pub(super) enum Outcome {
    WasHeld,
    NotHeld,
    /// Too few nodes replied.
    Failed(Option<Failure>),
}

impl ReleaseRound {
    /// A release of whatever `nodes` nodes have for this lease. `votes` may still arrive.
    pub(super) fn of_lease(
        shared: &Arc<RedlockShared>,
        (lease, place): (&LeaseSpec, Option<(LeaseId, PlaceAfter)>),
        nodes: usize,
        votes: Vec<(usize, InFlight)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            lease: lease.clone(),
            ballot: None,
            notifies: true,
            place,
            votes,
            until: shared.clock.now() + lease.ttl + shared.response_timeout,
            state: State::new(shared, nodes),
        })
    }

    /// Takes back the votes of a round that was not won, each behind its request on the same
    /// connection.
    pub(super) fn take_back(
        shared: &Arc<RedlockShared>,
        votes: &RoundRequest,
        sent: Vec<(usize, SentVote)>,
    ) {
        if sent.is_empty() {
            return;
        }
        let lease = votes.lease();
        let round = Arc::new(Self {
            shared: Arc::clone(shared),
            lease: lease.clone(),
            ballot: Some(votes.ballot()),
            notifies: false,
            place: None,
            votes: sent
                .iter()
                .map(|(node, it)| (*node, it.in_flight))
                .collect(),
            until: shared.clock.now() + lease.ttl + shared.longest_ttl,
            state: State::new(shared, sent.len()),
        });
        for (node, sent) in sent {
            if sent.connection.is_broken() {
                round.released(node, Err(disconnected()));
            } else {
                round.send(node, &sent.connection);
            }
        }
        round.finish_later();
    }

    pub(super) fn send(self: &Arc<Self>, node: usize, connection: &Arc<Connection>) {
        let request = Arc::clone(self) as Arc<dyn ReleaseRequest>;
        let store = &self.shared.nodes[node].store;
        store.release_vote(connection, node, request);
    }

    /// Waits until a majority has replied, or all nodes.
    pub(super) async fn decide(self: &Arc<Self>) -> Outcome {
        let outcome = poll_fn(|context| {
            let mut state = lock(&self.state);
            if let Some(outcome) = self.outcome(&mut state) {
                return Poll::Ready(outcome);
            }
            state.caller = Some(context.waker().clone());
            Poll::Pending
        });
        outcome.await
    }

    /// Nobody waits for the rest: a shutdown does so for a moment.
    pub(super) fn finish_later(self: &Arc<Self>) {
        if !self.is_finished() {
            self.shared.late_replies.add(Arc::clone(self));
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        let state = lock(&self.state);
        state.replied >= state.asked
    }

    /// A shutdown no longer waits for it.
    pub(super) fn let_shutdown_pass(&self) {
        let pending = lock(&self.state).pending.take();
        drop(pending);
    }

    fn outcome(&self, state: &mut State) -> Option<Outcome> {
        let (majority, nodes) = (self.shared.majority, self.shared.nodes.len());
        if state.held >= majority {
            return Some(Outcome::WasHeld);
        }
        if state.gone > nodes - majority {
            return Some(Outcome::NotHeld);
        }
        (state.replied >= state.asked).then(|| Outcome::Failed(state.failure.take()))
    }

    /// A release without a reply: if the vote before it has no reply either, the vote may still run.
    fn with_vote_in_flight(&self, node: usize, failure: Failure) -> Failure {
        let is_known = !failure.transient && failure.in_flight.is_none();
        if is_known || self.ballot.is_none() && bug(Bug::RedlockStrayVoteLeft) {
            return failure;
        }
        let vote = self.votes.iter().find(|(of, _)| *of == node);
        Failure {
            in_flight: vote.map(|(_, it)| *it).or(failure.in_flight),
            ..failure
        }
    }
}

impl State {
    fn new(shared: &RedlockShared, asked: usize) -> Mutex<Self> {
        Mutex::new(Self {
            asked,
            pending: shared.pending.get().map(Pending::begin),
            ..Self::default()
        })
    }
}

impl ReleaseRequest for ReleaseRound {
    fn lease(&self) -> &LeaseSpec {
        &self.lease
    }

    fn ballot(&self) -> Option<Ballot> {
        self.ballot
    }

    fn notifies(&self) -> bool {
        self.notifies
    }

    fn place(&self) -> Option<&(LeaseId, PlaceAfter)> {
        self.place.as_ref()
    }

    fn released(&self, node: usize, reply: Result<NodeReleaseReply, Failure>) {
        let reply = reply.map_err(|failure| self.with_vote_in_flight(node, failure));
        if let Err(failure) = &reply
            && (failure.transient || failure.in_flight.is_some())
        {
            self.shared.nodes[node].defer_release(DeferredRelease {
                held: self.lease.clone(),
                ballot: self.ballot,
                in_flight: failure.in_flight,
                until: self.until,
            });
        }
        if reply.as_ref().ok() == Some(&NodeReleaseReply::Offered) {
            self.shared.note_crowd(&self.lease.name);
        }
        let mut state = lock(&self.state);
        state.replied += 1;
        match reply {
            Ok(NodeReleaseReply::WasHeld | NodeReleaseReply::Offered) => state.held += 1,
            Ok(NodeReleaseReply::NotHeld) => state.gone += 1,
            Err(failure) => state.failure = Some(failure),
        }
        let (majority, nodes) = (self.shared.majority, self.shared.nodes.len());
        let is_last = state.replied >= state.asked;
        let is_decided = is_last || state.held >= majority || state.gone > nodes - majority;
        let caller = if is_decided {
            state.caller.take()
        } else {
            None
        };
        let pending = if is_last { state.pending.take() } else { None };
        drop(state);
        caller.into_iter().for_each(Waker::wake);
        drop(pending);
    }
}

fn disconnected() -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        "the connection to a node of the Redlock broke",
    ))
}
