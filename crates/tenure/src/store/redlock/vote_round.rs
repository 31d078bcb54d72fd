//! One round of votes: asks all nodes at once, and counts their votes until they decide.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::node::Ready;
use super::release_round::ReleaseRound;
use super::round_request::RoundRequest;
use super::vote_count::{DAY_US, Verdict, VoteCount};
use crate::lease::Fence;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::{Ballot, SentVote, VoteRequest};
use crate::store::{AcquireReply, Attempt, Slots};

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
        let votes = VoteCount::new(shared.nodes.len(), nodes.len());
        let request = RoundRequest::new(attempt, ballot, (votes, shared.nodes.len()));
        let mut round = Self {
            shared,
            request: Arc::new(request),
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
        let (verdict, floor) = self.request.verdict();
        if floor > 0 {
            let name = &self.request.lease().name;
            self.shared.grants.note_fence(name, floor);
        }
        verdict
    }

    /// A majority voted for the lease.
    pub(super) fn win(mut self) -> AcquireReply {
        self.won = true;
        let taken = self.shared.clock.now().saturating_since(self.started_at);
        self.shared.note_round_time(taken);
        // A waiter has joined the lists of nodes that refused, and must leave them.
        let sent = if self.request.attempt().queue {
            std::mem::take(&mut self.sent)
        } else {
            self.take_sent()
        };
        let held = self.request.lease();
        // A node that votes later has the lease like the others.
        self.shared
            .grants
            .note((held, self.started_at), &self.request, sent);
        AcquireReply::Granted {
            fence: Fence::new(self.request.ballot().first),
            sent_at: if bug(Bug::RedlockValidityFromAnswer) {
                self.shared.clock.now()
            } else {
                self.started_at
            },
            slots: Slots::default(),
        }
    }

    /// The nodes that were asked, except those known to have granted nothing.
    fn take_sent(&mut self) -> Vec<(usize, SentVote)> {
        let mut sent = std::mem::take(&mut self.sent);
        sent.retain(|(node, _)| !self.request.was_refused(*node));
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
