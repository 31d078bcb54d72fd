//! Releases a lease on all nodes; done when a majority has replied.

use std::sync::Arc;

use super::RedlockShared;
use super::deferred_release::DeferredRelease;
use super::fan_out::FanOut;
use super::grants::GrantedLease;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::{NodeReleaseReply, RedisStore};
use crate::store::{BoxFuture, Failure, InFlight, LeaseSpec, ReleaseReply};

type NodeReply = Result<NodeReleaseReply, Failure>;

/// Releases on all nodes that may have the lease.
pub(super) async fn release(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    limit: Moment,
) -> Result<ReleaseReply, Failure> {
    let release_round = begin(shared, lease, limit);
    finish(shared, lease, release_round).await
}

/// Releases on the caller's own task, if only votes were ever sent about the lease and their
/// connections are still open.
pub(super) fn release_on_caller<'a>(
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>> {
    let grant = shared.grants.take_plain(&lease.id)?;
    if grant
        .sent
        .iter()
        .any(|(_, sent)| sent.connection.is_broken())
    {
        shared.grants.put_back(&lease.id, grant);
        return None;
    }
    Some(Box::pin(async move {
        let release_round = release_after_votes(shared, lease, grant);
        finish(shared, lease, release_round).await
    }))
}

/// A release in progress. If dropped before all nodes have replied, the rest continues in the
/// background.
struct ReleaseRound<'a> {
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
    replies: Option<FanOut<NodeReply>>,
    until: Moment,
}

impl ReleaseRound<'_> {
    /// A majority has replied: the other replies are read later.
    fn finish_later(&mut self) {
        if let Some(rest) = self.replies.take() {
            let (shared, lease) = (Arc::clone(self.shared), self.lease.clone());
            let waiting = await_late_replies(shared, lease, rest, self.until);
            self.shared.finish_later(waiting);
        }
    }
}

impl Drop for ReleaseRound<'_> {
    fn drop(&mut self) {
        if let Some(rest) = self.replies.take() {
            let (shared, lease) = (Arc::clone(self.shared), self.lease.clone());
            self.shared
                .spawn_pending(await_late_replies(shared, lease, rest, self.until));
        }
    }
}

/// Sends the releases: to the nodes of a lease that was granted here, otherwise to all.
fn begin<'a>(
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
    limit: Moment,
) -> ReleaseRound<'a> {
    let grant = shared.grants.take(&lease.id);
    for (node, in_flight) in grant.iter().flat_map(|grant| &grant.unknown) {
        shared.defer_release(lease, *node, Some(*in_flight));
    }
    match grant {
        Some(grant) if !grant.repaired && !grant.sent.is_empty() => {
            release_after_votes(shared, lease, grant)
        }
        Some(grant) => {
            shared.defer_unanswered(lease, &grant, false);
            release_on_all(shared, lease, limit)
        }
        None => release_on_all(shared, lease, limit),
    }
}

/// Sends the release to all nodes.
fn release_on_all<'a>(
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
    limit: Moment,
) -> ReleaseRound<'a> {
    let limit = limit.min(shared.clock.now() + shared.response_timeout);
    let replies = shared.send_to_all(|store| {
        let lease = lease.clone();
        release_on_one(store, lease, limit)
    });
    release_round(shared, lease, replies)
}

/// Sends the release to one node, on any connection.
async fn release_on_one(store: Arc<RedisStore>, lease: LeaseSpec, limit: Moment) -> NodeReply {
    let connection = store.connection(limit).await?;
    store.release_on_node(connection, &lease, None, true).await
}

/// Sends each release after the vote, on the same connection.
fn release_after_votes<'a>(
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
    grant: GrantedLease,
) -> ReleaseRound<'a> {
    let limit = shared.clock.now() + shared.response_timeout;
    shared.defer_unanswered(lease, &grant, true);
    let mut requests = Vec::with_capacity(grant.sent.len());
    for (node, sent) in grant.sent {
        let store = &shared.nodes[node].store;
        let request: BoxFuture<'static, NodeReply> = if sent.connection.is_broken() {
            Box::pin(release_on_one(Arc::clone(store), lease.clone(), limit))
        } else {
            let taking = store.release_on_node(sent.connection, lease, None, true);
            let unanswered = grant.unanswered.contains(&node).then_some(sent.in_flight);
            Box::pin(async move {
                taking
                    .await
                    .map_err(|failure| with_vote_in_flight(failure, unanswered))
            })
        };
        requests.push((node, request));
    }
    release_round(shared, lease, FanOut::begin(requests))
}

/// A release without a reply: if the vote before it has no reply either, the vote may still run.
fn with_vote_in_flight(failure: Failure, vote: Option<InFlight>) -> Failure {
    let is_known = !failure.transient && failure.in_flight.is_none();
    if is_known || bug(Bug::RedlockStrayVoteLeft) {
        return failure;
    }
    Failure {
        in_flight: vote.or(failure.in_flight),
        ..failure
    }
}

fn release_round<'a>(
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
    replies: FanOut<NodeReply>,
) -> ReleaseRound<'a> {
    ReleaseRound {
        shared,
        lease,
        replies: Some(replies),
        until: shared.clock.now() + lease.ttl,
    }
}

/// Reads replies until they decide.
async fn finish(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    mut release_round: ReleaseRound<'_>,
) -> Result<ReleaseReply, Failure> {
    let (mut held, mut gone, mut failure) = (0, 0, None);
    let nodes = shared.nodes.len();
    loop {
        if held >= shared.majority {
            release_round.finish_later();
            return Ok(ReleaseReply::WasHeld { offered_to: None });
        }
        if gone > nodes - shared.majority {
            release_round.finish_later();
            return Ok(ReleaseReply::NotHeld);
        }
        let next = match &mut release_round.replies {
            Some(replies) => replies.next().await,
            None => None,
        };
        match next {
            None => break,
            Some((_, Ok(NodeReleaseReply::WasHeld))) => held += 1,
            Some((_, Ok(NodeReleaseReply::NotHeld))) => gone += 1,
            Some((node, Err(failed))) => {
                if failed.transient || failed.in_flight.is_some() {
                    shared.defer_release(lease, node, failed.in_flight);
                }
                failure = Some(failed);
            }
        }
    }
    let failure = failure.unwrap_or_else(undecided);
    if !failure.transient {
        return Err(failure);
    }
    // Some nodes have released it: a retry would report that it was not there.
    Err(Failure {
        in_flight: Some(InFlight {
            connection: None,
            latest_us: 0,
        }),
        ..failure
    })
}

/// Defers the release on nodes that did not reply in time.
async fn await_late_replies(
    shared: Arc<RedlockShared>,
    lease: LeaseSpec,
    mut rest: FanOut<NodeReply>,
    until: Moment,
) {
    while let Some((node, answer)) = rest.next().await {
        if let Err(failure) = answer
            && failure.transient
        {
            shared.nodes[node].defer_release(DeferredRelease {
                held: lease.clone(),
                ballot: None,
                in_flight: failure.in_flight,
                until,
            });
        }
    }
}

fn undecided() -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        "too few nodes of the Redlock replied to a release",
    ))
}
