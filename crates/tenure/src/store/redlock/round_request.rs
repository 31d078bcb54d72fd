//! What a round of votes asks the nodes, and what they have replied.
//!
//! Votes are counted where the replies are read, so a round wakes its caller once: when it is
//! decided.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::node::lock;
use super::vote_count::{Verdict, VoteCount};
#[cfg(test)]
use crate::store::Wish;
use crate::store::redis::{Ballot, Vote, VoteRequest};
use crate::store::{Attempt, Failure, LeaseSpec};

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

impl RoundRequest {
    /// A request to some of `nodes` nodes, and the count of their votes.
    pub(super) fn new(
        attempt: &Attempt,
        ballot: Ballot,
        (votes, nodes): (VoteCount, usize),
    ) -> Self {
        Self {
            attempt: attempt.clone(),
            ballot,
            is_over: AtomicBool::new(false),
            state: Mutex::new(RoundState {
                votes,
                replies: vec![NodeReply::Unknown; nodes],
                caller: None,
                in_time: false,
            }),
        }
    }

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

    /// The result as things are, and the greatest fence that any node reported.
    pub(super) fn verdict(&self) -> (Verdict, u64) {
        let mut state = lock(&self.state);
        let floor = state.votes.floor;
        (state.votes.verdict(true), floor)
    }

    /// Whether this node is known to have granted nothing.
    pub(super) fn was_refused(&self, node: usize) -> bool {
        lock(&self.state).replies[node] == NodeReply::Nothing
    }

    /// Whether a vote that was sent to this node may still arrive there.
    pub(super) fn may_still_arrive(&self, node: usize) -> bool {
        lock(&self.state).replies[node] == NodeReply::Unknown
    }

    /// Ready when the votes decide.
    pub(super) fn poll_decided(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        state.in_time = false;
        if state.votes.is_decided() {
            return Poll::Ready(());
        }
        state.wait(context)
    }

    /// Ready when a majority has replied, or all have.
    pub(super) fn poll_answered(&self, context: &Context<'_>) -> Poll<()> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::lease::LeaseId;
    use crate::name::LockName;
    use crate::store::{Busy, InFlight};

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn request(nodes: usize) -> RoundRequest {
        let name = LockName::new("n").unwrap();
        let held = LeaseSpec::new(name, LeaseId::new("lease"), Duration::from_secs(1));
        let attempt = Attempt {
            held,
            meta: Arc::default(),
            fences: 1,
            queue: false,
            wish: Wish::Lock,
        };
        let ballot = Ballot {
            first: 1,
            fences: 1,
        };
        RoundRequest::new(&attempt, ballot, (VoteCount::new(nodes, nodes), nodes))
    }

    fn busy() -> Vote {
        let busy = Busy {
            holder: LeaseId::new("another"),
            remaining: None,
            ask_after: None,
        };
        Vote::Busy(busy, 7)
    }

    fn no_reply() -> Failure {
        Failure::not_sent(Error::new(ErrorKind::Unavailable, "no reply"))
    }

    /// One wake-up for each vote would cost more than the votes.
    #[test]
    fn a_round_wakes_its_caller_once_at_the_majority() {
        let (request, wakes) = (request(5), Arc::new(WakeCount::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        assert!(request.poll_decided(&context).is_pending());
        request.voted(4, Ok(Vote::Granted));
        request.voted(0, Ok(busy()));
        request.voted(1, Ok(Vote::Granted));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        request.voted(3, Ok(Vote::Granted));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(request.poll_decided(&context).is_ready());
        request.voted(2, Ok(Vote::Granted));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    /// A caller with a timer must know when to start it.
    #[test]
    fn a_round_that_is_answered_but_not_decided_wakes_who_waits_for_that() {
        let (request, wakes) = (request(5), Arc::new(WakeCount::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        assert!(request.poll_answered(&context).is_pending());
        for node in 0..2 {
            request.voted(node, Ok(Vote::Granted));
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        request.voted(2, Ok(busy()));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(request.poll_answered(&context).is_ready());
        assert!(request.poll_decided(&context).is_pending());
    }

    #[test]
    fn a_vote_without_a_reply_may_still_arrive() {
        let request = request(3);
        request.voted(0, Ok(busy()));
        request.voted(1, Err(no_reply()));
        let in_flight = InFlight {
            connection: None,
            latest_us: 1,
        };
        let failure = Failure {
            in_flight: Some(in_flight),
            ..no_reply()
        };
        request.voted(2, Err(failure));
        assert!(!request.may_still_arrive(0), "it was refused");
        assert!(!request.may_still_arrive(1), "it was not sent");
        assert!(request.may_still_arrive(2));
    }
}
