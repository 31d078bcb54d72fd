//! Releases a lease on all nodes; done when a majority has replied.

use std::sync::Arc;

use super::RedlockShared;
use super::grants::{GrantedLease, NodeVote};
use super::release_round::{Outcome, ReleaseRound};
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::store::redis::{PlaceAfter, ReleaseRequest};
use crate::store::{BoxFuture, Failure, InFlight, LeaseSpec, ReleaseReply};

/// Releases on all nodes that may have the lease.
pub(super) async fn release(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    place: Option<(LeaseId, PlaceAfter)>,
    limit: Moment,
) -> Result<ReleaseReply, Failure> {
    finish(begin(shared, (lease, place), limit)).await
}

/// Releases on the caller's own task, if only votes were ever sent about the lease and their
/// connections are still open.
pub(super) fn release_on_caller<'a>(
    shared: &'a Arc<RedlockShared>,
    lease: &'a LeaseSpec,
    place: Option<(LeaseId, PlaceAfter)>,
) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>> {
    let grant = shared.grants.take_plain(&lease.id)?;
    if grant
        .sent
        .iter()
        .any(|vote| vote.sent.connection.is_broken())
    {
        shared.grants.put_back(&lease.id, grant);
        return None;
    }
    let limit = shared.clock.now() + shared.response_timeout;
    let finishing = finish(release_after_votes(shared, (lease, place), &grant, limit));
    Some(Box::pin(finishing))
}

/// Sends the releases: to the nodes of a lease that was granted here, otherwise to all.
fn begin(
    shared: &Arc<RedlockShared>,
    (lease, place): (&LeaseSpec, Option<(LeaseId, PlaceAfter)>),
    limit: Moment,
) -> Begun {
    let limit = limit.min(shared.clock.now() + shared.response_timeout);
    let grant = shared.grants.take(&lease.id);
    for (node, in_flight) in grant.iter().flat_map(|grant| &grant.unknown) {
        shared.defer_release(lease, *node, Some(*in_flight));
    }
    match grant {
        Some(grant) if !grant.repaired && !grant.sent.is_empty() => {
            release_after_votes(shared, (lease, place), &grant, limit)
        }
        Some(grant) => {
            shared.defer_unanswered(lease, &grant, false);
            release_on_all(shared, (lease, place), limit)
        }
        None => release_on_all(shared, (lease, place), limit),
    }
}

/// Sends the release to all nodes.
fn release_on_all(
    shared: &Arc<RedlockShared>,
    of: (&LeaseSpec, Option<(LeaseId, PlaceAfter)>),
    limit: Moment,
) -> Begun {
    let nodes = shared.nodes.len();
    let round = ReleaseRound::of_lease(shared, of, nodes, Vec::new());
    for node in 0..nodes {
        release_on_one(shared, &round, node, limit);
    }
    Begun(round)
}

/// Sends the release to one node, on the engine's connection.
fn release_on_one(
    shared: &Arc<RedlockShared>,
    round: &Arc<ReleaseRound>,
    node: usize,
    limit: Moment,
) {
    let store = &shared.nodes[node].store;
    if let Some(connection) = store.live_connection() {
        return round.send(node, &connection);
    }
    let (round, store) = (Arc::clone(round), Arc::clone(store));
    shared.spawn(async move {
        match store.connection(limit).await {
            Ok(connection) => round.send(node, &connection),
            Err(failure) => round.released(node, Err(failure)),
        }
    });
}

/// Sends each release after the vote, on the same connection.
fn release_after_votes(
    shared: &Arc<RedlockShared>,
    (lease, place): (&LeaseSpec, Option<(LeaseId, PlaceAfter)>),
    grant: &GrantedLease,
    limit: Moment,
) -> Begun {
    shared.defer_unanswered(lease, grant, true);
    let votes = grant.unanswered();
    let votes = votes.map(|vote| (vote.node, vote.sent.in_flight));
    // The waiter may be in the lists of the others too.
    let others: Vec<_> = (0..shared.nodes.len())
        .filter(|node| place.is_some() && grant.sent.iter().all(|vote| vote.node != *node))
        .filter_map(|node| Some((node, shared.nodes[node].store.live_connection()?)))
        .collect();
    let asked = grant.sent.len() + others.len();
    let round = ReleaseRound::of_lease(shared, (lease, place), asked, votes.collect());
    for NodeVote { node, sent, .. } in &grant.sent {
        if sent.connection.is_broken() {
            release_on_one(shared, &round, *node, limit);
        } else {
            round.send(*node, &sent.connection);
        }
    }
    for (node, connection) in others {
        round.send(node, &connection);
    }
    Begun(round)
}

/// A release in progress. Whether or not its caller waits for it, it continues.
struct Begun(Arc<ReleaseRound>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.finish_later();
    }
}

/// Waits until the replies decide.
async fn finish(begun: Begun) -> Result<ReleaseReply, Failure> {
    let failure = match begun.0.decide().await {
        Outcome::WasHeld => return Ok(ReleaseReply::WasHeld { offered_to: None }),
        Outcome::NotHeld => return Ok(ReleaseReply::NotHeld),
        Outcome::Failed(failure) => failure.unwrap_or_else(undecided),
    };
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

fn undecided() -> Failure {
    Failure::not_sent(Error::new(
        ErrorKind::Unavailable,
        "too few nodes of the Redlock replied to a release",
    ))
}
