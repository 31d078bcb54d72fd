//! Acquires a lock by majority vote.

use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::node::{Readiness, Ready};
use super::vote_count::Verdict;
use super::vote_round::VoteRound;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::{AcquireReply, Attempt, BoxFuture, Busy, Failure, NotYet};

/// How many split votes to retry, while several clients take votes from each other, before the lock
/// counts as busy.
const SPLITS_MAX: u32 = 6;
/// The backoff after a split vote, at first and at most: a random part of it.
const BACKOFF_MIN: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(100);
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
    let name = &attempt.held.name;
    if shared.holds_back(name).is_some() || shared.is_crowded(name) {
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
