//! Acquires a lock by majority vote, and releases votes that were not enough.

use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::deferred_release::DeferredRelease;
use super::fan_out::FanOut;
use super::node::{Readiness, Ready};
use super::vote_count::{DAY_US, Verdict, VoteCount};
use crate::error::{Error, ErrorKind};
use crate::lease::Fence;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::{Ballot, SentVote, Vote};
use crate::store::{AcquireReply, Attempt, BoxFuture, Busy, Failure, NotYet};

/// How many split votes to retry, while several clients take votes from each other, before the lock
/// counts as busy.
const SPLITS_MAX: u32 = 6;
/// The backoff after a split vote, at first and at most: a random part of it.
const BACKOFF_MIN: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(100);
/// How long to wait at least for the remaining nodes when a majority has replied without a
/// decision.
const GRACE_MIN: Duration = Duration::from_millis(10);
/// How often a block of fences may be too low before the clocks count as unreasonable.
const TOO_LOW_MAX: u32 = 4;
/// How soon a waiter retries after split votes without a message.
const SPLIT_RETRY: Duration = Duration::from_millis(50);

/// Acquires the lock if a majority votes for it.
pub(super) async fn acquire(
    shared: &Arc<RedlockShared>,
    attempt: &Attempt,
    limit: Moment,
) -> Result<AcquireReply, Failure> {
    shared.hold_back(&attempt.held.name).await;
    let (mut splits, mut too_low) = (0, 0);
    loop {
        let nodes = match ready_nodes(shared, limit).await? {
            ReadyNodes::Enough(nodes) => nodes,
            ReadyNodes::TooYoung(not_yet) => return Ok(AcquireReply::NotYet(not_yet)),
        };
        let mut vote_round = VoteRound::begin(shared, attempt, nodes);
        match vote_round.decide_in_time().await {
            Verdict::Won => return Ok(vote_round.win()),
            Verdict::Held(busy) => return Ok(AcquireReply::Busy(busy)),
            Verdict::Failed(failure) => return Err(listing_nodes(shared, failure)),
            Verdict::TooLow | Verdict::Open if too_low < TOO_LOW_MAX => too_low += 1,
            Verdict::TooLow | Verdict::Open => return Err(clocks_differ()),
            Verdict::Split(busy) => {
                drop(vote_round);
                splits += 1;
                let pause = BACKOFF_MIN.max(shared.round_time()) * 2_u32.pow(splits);
                let pause = random_part(pause.min(BACKOFF_MAX));
                if splits > SPLITS_MAX || shared.clock.now() + pause >= limit {
                    return split_reply(busy);
                }
                shared.clock.sleep_until(shared.clock.now() + pause).await;
            }
        }
    }
}

/// Votes once more for a lease that this client holds.
pub(super) async fn acquire_again(
    shared: &Arc<RedlockShared>,
    attempt: &Attempt,
    limit: Moment,
) -> Result<AcquireReply, Failure> {
    let ReadyNodes::Enough(nodes) = ready_nodes(shared, limit).await? else {
        return Err(undecided());
    };
    let mut vote_round = VoteRound::begin(shared, attempt, nodes);
    match vote_round.decide_in_time().await {
        Verdict::Won => Ok(vote_round.win()),
        _ => Err(undecided()),
    }
}

/// Tries once, on the caller's own task, if enough nodes are ready.
pub(super) fn acquire_on_caller<'a>(
    shared: &'a Arc<RedlockShared>,
    attempt: &'a Attempt,
) -> Option<BoxFuture<'a, Result<AcquireReply, Failure>>> {
    if shared.holds_back(&attempt.held.name).is_some() {
        return None;
    }
    let ready = |(index, node): (usize, &Arc<super::node::RedlockNode>)| match node
        .ready_on_caller(&shared.runtime)
    {
        Readiness::Ready(ready) => Some((index, ready)),
        _ => None,
    };
    let nodes: Vec<_> = shared.nodes.iter().enumerate().filter_map(ready).collect();
    if nodes.len() < shared.majority {
        return None;
    }
    Some(Box::pin(async move {
        let mut vote_round = VoteRound::begin(shared, attempt, nodes);
        match vote_round.decide().await {
            Verdict::Won => Ok(vote_round.win()),
            Verdict::Held(busy) => Ok(AcquireReply::Busy(busy)),
            Verdict::Failed(failure) => Err(failure),
            // The engine continues: it has timers.
            Verdict::TooLow | Verdict::Split(_) | Verdict::Open => Err(undecided()),
        }
    }))
}

/// The nodes that are ready to vote.
enum ReadyNodes {
    Enough(Vec<(usize, Ready)>),
    TooYoung(NotYet),
}

/// Waits until a majority is ready, or returns why not.
async fn ready_nodes(shared: &Arc<RedlockShared>, limit: Moment) -> Result<ReadyNodes, Failure> {
    let mut waited = false;
    loop {
        let (mut ready, mut young_until) = (Vec::new(), Vec::new());
        for (index, node) in shared.nodes.iter().enumerate() {
            match node.ready() {
                Readiness::Ready(node) => ready.push((index, node)),
                Readiness::Young { until, .. } => young_until.push(until),
                Readiness::NotReached => {}
            }
        }
        if ready.len() >= shared.majority {
            return Ok(ReadyNodes::Enough(ready));
        }
        if !waited {
            waited = true;
            shared.prepare_majority(limit).await;
            continue;
        }
        let missing = shared.majority - ready.len();
        young_until.sort();
        return match young_until.get(missing - 1) {
            Some(until) => Ok(ReadyNodes::TooYoung(NotYet {
                until: *until,
                error: shared.too_few("may vote"),
            })),
            None => Err(Failure::not_sent(shared.too_few("can be reached"))),
        };
    }
}

/// One round of votes. If dropped before it is won, it releases the votes it may have got.
struct VoteRound<'a> {
    shared: &'a Arc<RedlockShared>,
    attempt: &'a Attempt,
    ballot: Ballot,
    started_at: Moment,
    replies: Option<FanOut<Result<Vote, Failure>>>,
    votes: VoteCount,
    /// The nodes that were asked, except those known to have granted nothing.
    sent: Vec<(usize, SentVote)>,
    won: bool,
}

impl<'a> VoteRound<'a> {
    fn begin(
        shared: &'a Arc<RedlockShared>,
        attempt: &'a Attempt,
        nodes: Vec<(usize, Ready)>,
    ) -> Self {
        let started_at = shared.clock.now();
        let ballot = propose(shared, attempt, &nodes, started_at);
        // No two rounds of this client propose the same block, so a round releases only its own
        // votes.
        let name = &attempt.held.name;
        shared.grants.note_fence(name, ballot.last());
        let votes = VoteCount::new(shared.nodes.len(), nodes.len());
        let (mut sent, mut requests) = (Vec::new(), Vec::new());
        for (node, Ready { connection, bounds }) in nodes {
            let store = &shared.nodes[node].store;
            let (travelling, voting) = store.vote(connection, attempt, (ballot, bounds));
            sent.push((node, travelling));
            requests.push((node, Box::pin(voting) as BoxFuture<'static, _>));
        }
        Self {
            shared,
            attempt,
            ballot,
            started_at,
            replies: Some(FanOut::begin(requests)),
            votes,
            sent,
            won: false,
        }
    }

    /// Counts votes until they decide.
    async fn decide(&mut self) -> Verdict {
        loop {
            match self.votes.verdict(false) {
                Verdict::Open => {}
                verdict => return verdict,
            }
            if !self.count_next().await {
                return self.votes.verdict(true);
            }
        }
    }

    /// The same, but stops waiting for slow nodes some time after a majority has replied.
    async fn decide_in_time(&mut self) -> Verdict {
        loop {
            match self.votes.verdict(false) {
                Verdict::Open => {}
                verdict => return verdict,
            }
            let counted = if self.votes.is_answered() {
                let taken = self.shared.clock.now().saturating_since(self.started_at);
                let grace = (taken * 3).max(GRACE_MIN);
                tokio::time::timeout(grace, self.count_next()).await
            } else {
                Ok(self.count_next().await)
            };
            if !counted.unwrap_or(false) {
                return self.votes.verdict(true);
            }
        }
    }

    /// Counts one more vote; false if there is none.
    async fn count_next(&mut self) -> bool {
        let Some(replies) = &mut self.replies else {
            return false;
        };
        let Some((node, vote)) = replies.next().await else {
            return false;
        };
        let gave_nothing = match &vote {
            Ok(Vote::Granted) => false,
            Ok(_) => true,
            Err(failure) => failure.in_flight.is_none(),
        };
        if gave_nothing {
            self.sent.retain(|(asked, _)| *asked != node);
        }
        self.votes.count(vote);
        if self.votes.floor > 0 {
            let name = &self.attempt.held.name;
            self.shared.grants.note_fence(name, self.votes.floor);
        }
        true
    }

    /// A majority voted for the lease.
    fn win(mut self) -> AcquireReply {
        self.won = true;
        let taken = self.shared.clock.now().saturating_since(self.started_at);
        self.shared.note_round_time(taken);
        let held = &self.attempt.held;
        let grants = &self.shared.grants;
        // Later replies are ignored: a node that votes late has the lease like the others.
        let unanswered = self
            .replies
            .take()
            .map_or_else(Vec::new, |rest| rest.unanswered());
        let sent = std::mem::take(&mut self.sent);
        grants.note((held, self.started_at), self.ballot, sent, unanswered);
        AcquireReply::Granted {
            fence: Fence::new(self.ballot.first),
            sent_at: if bug(Bug::RedlockValidityFromAnswer) {
                self.shared.clock.now()
            } else {
                self.started_at
            },
        }
    }
}

impl Drop for VoteRound<'_> {
    fn drop(&mut self) {
        // No further request of this round is sent, so the releases follow all of them.
        self.replies = None;
        if self.won || bug(Bug::RedlockMinorityKept) {
            return;
        }
        for (node, sent) in std::mem::take(&mut self.sent) {
            let shared = Arc::clone(self.shared);
            let deferred = DeferredRelease {
                held: self.attempt.held.clone(),
                ballot: Some(self.ballot),
                in_flight: Some(sent.in_flight),
                until: shared.clock.now() + self.attempt.held.ttl + shared.longest_ttl,
            };
            self.shared
                .spawn_pending(release_vote(shared, node, sent, deferred));
        }
    }
}

/// Releases a vote that was not enough, after the vote request on the same connection.
async fn release_vote(
    shared: Arc<RedlockShared>,
    index: usize,
    sent: SentVote,
    deferred: DeferredRelease,
) {
    let node = &shared.nodes[index];
    let (held, ballot) = (&deferred.held, deferred.ballot);
    let broken = sent.connection.is_broken();
    let taking = (!broken).then(|| {
        node.store
            .release_on_node(sent.connection, held, ballot, false)
    });
    let taken = match await_some(taking).await {
        Some(Ok(_)) => true,
        Some(Err(failure)) => !failure.transient && failure.in_flight.is_none(),
        None => false,
    };
    if !taken {
        node.defer_release(deferred);
    }
}

async fn await_some<T>(taking: Option<impl Future<Output = T>>) -> Option<T> {
    match taking {
        Some(taking) => Some(taking.await),
        None => None,
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

/// No lease has a majority, several times in a row: busy, for a moment.
fn split_reply(busy: Option<Busy>) -> Result<AcquireReply, Failure> {
    let busy = busy.ok_or_else(undecided)?;
    let patience = SPLIT_RETRY + random_part(SPLIT_RETRY);
    let remaining = busy.remaining.map_or(patience, |left| left.min(patience));
    Ok(AcquireReply::Busy(Busy {
        remaining: Some(remaining),
        ..busy
    }))
}

/// Adds what is known about every node to a failure.
fn listing_nodes(shared: &RedlockShared, failure: Failure) -> Failure {
    if !failure.transient {
        return failure;
    }
    Failure {
        error: shared.too_few("answered").caused_by(failure.error),
        ..failure
    }
}

fn undecided() -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        "no client got a majority of the Redlock's nodes in time: several tried at once",
    ))
}

fn clocks_differ() -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        "no majority of the Redlock's nodes accepts the stored fences: do their clocks differ by \
         more than a day?",
    ))
}

fn random_part(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}
