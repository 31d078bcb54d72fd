//! One round of votes: asks all nodes at once, and counts their votes until they decide.
//!
//! Votes are counted where the replies are read, so a round wakes its caller once: when it is
//! decided.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::RedlockShared;
use super::node::{Ready, lock};
use super::release_round::ReleaseRound;
use super::vote_count::{DAY_US, Verdict, VoteCount};
use crate::lease::Fence;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::{Ballot, SentVote, Vote, VoteRequest};
use crate::store::{AcquireReply, Attempt, Failure, LeaseSpec};

/// How long to wait at least for the remaining nodes when a majority has replied without a
/// decision.
const GRACE_MIN: Duration = Duration::from_millis(10);

/// One round of votes. If dropped before it is won, it releases the votes it may have got.
pub(super) struct VoteRound<'a> {
    shared: &'a Arc<RedlockShared>,
    request: Arc<RoundRequest>,
    started_at: Moment,
    sent: Vec<(usize, SentVote)>,
    won: bool,
}

/// What a round asks the nodes, and what they have replied.
pub(super) struct RoundRequest {
    attempt: Attempt,
    ballot: Ballot,
    /// Whether no further vote is wanted.
    is_over: AtomicBool,
    state: Mutex<RoundState>,
}

struct RoundState {
    votes: VoteCount,
    /// By index of the node.
    replies: Vec<NodeReply>,
    caller: Option<Waker>,
    /// Whether the caller wants to know when a majority has replied, although it decided nothing.
    in_time: bool,
}

/// What is known of one node's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeReply {
    /// None, or no reply: the vote may be there, or come later.
    Unknown,
    /// The node has the lease.
    Granted,
    /// The node granted nothing.
    Nothing,
}

impl<'a> VoteRound<'a> {
    pub(super) fn begin(
        shared: &'a Arc<RedlockShared>,
        attempt: &Attempt,
        nodes: Vec<(usize, Ready)>,
    ) -> Self {
        let started_at = shared.clock.now();
        let ballot = propose(shared, attempt, &nodes, started_at);
        // No two rounds of this client propose the same block, so a round releases only its own
        // votes.
        shared.grants.note_fence(&attempt.held.name, ballot.last());
        let request = Arc::new(RoundRequest {
            attempt: attempt.clone(),
            ballot,
            is_over: AtomicBool::new(false),
            state: Mutex::new(RoundState {
                votes: VoteCount::new(shared.nodes.len(), nodes.len()),
                replies: vec![NodeReply::Unknown; shared.nodes.len()],
                caller: None,
                in_time: false,
            }),
        });
        let mut round = Self {
            shared,
            request,
            started_at,
            sent: Vec::with_capacity(nodes.len()),
            won: false,
        };
        for (node, Ready { connection, bounds }) in nodes {
            let request = Arc::clone(&round.request) as Arc<dyn VoteRequest>;
            let store = &shared.nodes[node].store;
            let sent = store.vote(connection, (node, request), (bounds, started_at));
            round.sent.push((node, sent));
        }
        round
    }

    /// Waits until the votes decide.
    pub(super) async fn decide(&mut self) -> Verdict {
        poll_fn(|context| self.request.poll_decided(context)).await;
        self.verdict()
    }

    /// The same, but stops waiting for slow nodes some time after a majority has replied.
    pub(super) async fn decide_in_time(&mut self) -> Verdict {
        poll_fn(|context| self.request.poll_answered(context)).await;
        let taken = self.shared.clock.now().saturating_since(self.started_at);
        let grace = (taken * 3).max(GRACE_MIN);
        let decided = poll_fn(|context| self.request.poll_decided(context));
        // Without a decision it is taken as it stands.
        let _ = tokio::time::timeout(grace, decided).await;
        self.verdict()
    }

    fn verdict(&self) -> Verdict {
        let mut state = lock(&self.request.state);
        let floor = state.votes.floor;
        let verdict = state.votes.verdict(true);
        drop(state);
        if floor > 0 {
            let name = &self.request.attempt.held.name;
            self.shared.grants.note_fence(name, floor);
        }
        verdict
    }

    /// A majority voted for the lease.
    pub(super) fn win(mut self) -> AcquireReply {
        self.won = true;
        let taken = self.shared.clock.now().saturating_since(self.started_at);
        self.shared.note_round_time(taken);
        let sent = self.take_sent();
        let held = &self.request.attempt.held;
        // A node that votes later has the lease like the others.
        self.shared
            .grants
            .note((held, self.started_at), &self.request, sent);
        AcquireReply::Granted {
            fence: Fence::new(self.request.ballot.first),
            sent_at: if bug(Bug::RedlockValidityFromAnswer) {
                self.shared.clock.now()
            } else {
                self.started_at
            },
        }
    }

    /// The nodes that were asked, except those known to have granted nothing.
    fn take_sent(&mut self) -> Vec<(usize, SentVote)> {
        let mut sent = std::mem::take(&mut self.sent);
        let state = lock(&self.request.state);
        sent.retain(|(node, _)| state.replies[*node] != NodeReply::Nothing);
        sent
    }
}

impl Drop for VoteRound<'_> {
    fn drop(&mut self) {
        if self.won {
            return;
        }
        // From now on no vote of this round is sent, so the releases follow all of them.
        self.request.end();
        if bug(Bug::RedlockMinorityKept) {
            return;
        }
        let sent = self.take_sent();
        ReleaseRound::take_back(self.shared, &self.request, sent);
    }
}

impl RoundRequest {
    /// No further vote is sent. What was sent may still arrive.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn lease(&self) -> &LeaseSpec {
        &self.attempt.held
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whether a vote that was sent to this node may still arrive there.
    pub(super) fn may_still_arrive(&self, node: usize) -> bool {
        lock(&self.state).replies[node] == NodeReply::Unknown
    }

    fn poll_decided(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        state.in_time = false;
        if state.votes.is_decided() {
            return Poll::Ready(());
        }
        state.wait(context)
    }

    /// Ready when a majority has replied, or all have.
    fn poll_answered(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        state.in_time = true;
        if state.votes.is_decided() || state.votes.is_answered() {
            return Poll::Ready(());
        }
        state.wait(context)
    }
}

impl RoundState {
    fn wait(&mut self, context: &Context<'_>) -> Poll<()> {
        match &mut self.caller {
            Some(caller) => caller.clone_from(context.waker()),
            None => self.caller = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl VoteRequest for RoundRequest {
    fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    fn ballot(&self) -> Ballot {
        self.ballot
    }

    fn is_wanted(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    fn voted(&self, node: usize, vote: Result<Vote, Failure>) {
        let mut state = lock(&self.state);
        state.replies[node] = match &vote {
            Ok(Vote::Granted) => NodeReply::Granted,
            Ok(_) => NodeReply::Nothing,
            Err(failure) if failure.in_flight.is_none() => NodeReply::Nothing,
            Err(_) => NodeReply::Unknown,
        };
        state.votes.count(vote);
        let wakes = state.votes.is_decided() || state.in_time && state.votes.is_answered();
        let caller = if wakes { state.caller.take() } else { None };
        drop(state);
        caller.into_iter().for_each(Waker::wake);
    }
}

/// A block of fences above all known fences of the name, and above the clocks of most nodes.
fn propose(
    shared: &RedlockShared,
    attempt: &Attempt,
    nodes: &[(usize, Ready)],
    now: Moment,
) -> Ballot {
    let mut clocks: Vec<u64> = nodes
        .iter()
        .map(|(_, it)| it.connection.server_us(now))
        .collect();
    clocks.sort_unstable();
    // Not the greatest: one node whose clock is far ahead must not carry the others with it.
    let clock = clocks.get(clocks.len() / 2).copied().unwrap_or(0);
    let seen = shared.grants.greatest_fence(&attempt.held.name);
    let above = if seen < clock + DAY_US { seen + 1 } else { 0 };
    Ballot {
        first: clock.max(above),
        fences: attempt.fences,
    }
}
