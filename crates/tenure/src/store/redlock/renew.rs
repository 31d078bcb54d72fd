//! Renews, repairs, watches and adopts leases by majority.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::fan_out::FanOut;
use super::inspect::inspect;
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{
    Failure, InFlight, LeaseSpec, NotHeld, Proclamation, ReleaseReply, RenewReply, Store,
    WatchReply,
};

/// How long to wait for the remaining nodes when the others disagree.
const GRACE: Duration = Duration::from_millis(50);

/// What the nodes reported about a lease that they should have.
struct RenewCount {
    nodes: usize,
    majority: usize,
    sent_at: Option<Moment>,
    held: usize,
    /// The nodes that do not have it, and the lease there instead, if any.
    gone: Vec<(usize, Option<LeaseId>)>,
    failure: Option<Failure>,
}

impl RenewCount {
    fn new(shared: &RedlockShared) -> Self {
        Self {
            nodes: shared.nodes.len(),
            majority: shared.majority,
            sent_at: None,
            held: 0,
            gone: Vec::new(),
            failure: None,
        }
    }

    fn renewal(&mut self, node: usize, reply: Result<RenewReply, Failure>) {
        match reply {
            Ok(RenewReply::Until { sent_at }) => {
                self.held += 1;
                self.sent_at = Some(self.sent_at.map_or(sent_at, |known| known.min(sent_at)));
            }
            Ok(RenewReply::NotHeld(not_held)) => self.gone.push((node, not_held.taken_by)),
            Ok(RenewReply::Unconfirmed(failure)) | Err(failure) => self.failed(failure),
        }
    }

    fn failed(&mut self, failure: Failure) {
        // A failure that leaves a request in flight matters more for the cleanup.
        if failure.in_flight.is_some() || self.failure.is_none() {
            self.failure = Some(failure);
        }
    }

    /// The result, once there is one.
    fn verdict(&self) -> Option<Result<Moment, NotHeld>> {
        let enough = if bug(Bug::RedlockRenewedByOne) {
            1
        } else {
            self.majority
        };
        if self.held >= enough {
            return self.sent_at.map(Ok);
        }
        // So many nodes do not have it that no majority can.
        (self.gone.len() > self.nodes - self.majority).then(|| {
            let taken_by = self.gone.iter().find_map(|(_, by)| by.clone());
            Err(NotHeld { taken_by })
        })
    }

    fn undecided(self) -> Failure {
        self.failure.unwrap_or_else(|| {
            Failure::not_sent(Error::new(
                ErrorKind::Unavailable,
                "too few nodes of the Redlock still have the lease, or too few replied",
            ))
        })
    }
}

/// Renews on all nodes; done when a majority has renewed.
pub(super) async fn renew(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    watched: bool,
    limit: Moment,
) -> Result<RenewReply, Failure> {
    let mut replies = shared.send_to_all(|store| {
        let lease = lease.clone();
        async move {
            store.store_longest_ttl(&lease, limit).await?;
            store.renew(&lease, watched, limit).await
        }
    });
    let mut count = RenewCount::new(shared);
    while count.verdict().is_none() {
        let Some((node, reply)) = replies.next().await else {
            return Err(count.undecided());
        };
        count.renewal(node, reply);
    }
    match count.verdict() {
        Some(Ok(sent_at)) => {
            shared.grants.note_renewed(lease, sent_at);
            let forgot = count.forgot();
            shared.spawn(repair_remaining(
                Arc::clone(shared),
                lease.clone(),
                forgot,
                replies,
            ));
            Ok(RenewReply::Until { sent_at })
        }
        Some(Err(not_held)) => {
            shared.discard(lease);
            Ok(RenewReply::NotHeld(not_held))
        }
        None => Err(count.undecided()),
    }
}

impl RenewCount {
    /// The nodes where the lock is free.
    fn forgot(&self) -> Vec<usize> {
        let is_free = self.gone.iter().filter(|(_, by)| by.is_none());
        is_free.map(|(node, _)| *node).collect()
    }
}

/// Renews several leases, in one batch per node.
pub(super) async fn renew_all(
    shared: &Arc<RedlockShared>,
    leases: Vec<&LeaseSpec>,
    watched: bool,
    limit: Moment,
) -> Result<Vec<Option<RenewReply>>, Failure> {
    let owned: Arc<Vec<LeaseSpec>> = Arc::new(leases.into_iter().cloned().collect());
    let mut replies = shared.send_to_all(|store| {
        let leases = Arc::clone(&owned);
        async move {
            if let Some(longest) = leases.iter().max_by_key(|lease| lease.ttl) {
                store.store_longest_ttl(longest, limit).await?;
            }
            let leases = leases.iter().collect();
            store.renew_all(leases, watched, limit).await
        }
    });
    let mut counts: Vec<RenewCount> = owned.iter().map(|_| RenewCount::new(shared)).collect();
    let mut failure = None;
    let mut answered = 0;
    while counts.iter().any(|count| count.verdict().is_none()) {
        match replies.next().await {
            None => break,
            Some((_, Err(failed))) => failure = Some(failed),
            Some((node, Ok(answers))) => {
                answered += 1;
                for (count, reply) in counts.iter_mut().zip(answers) {
                    if let Some(reply) = reply {
                        count.renewal(node, Ok(reply));
                    }
                }
            }
        }
    }
    if answered < shared.majority {
        return Err(failure.unwrap_or_else(|| RenewCount::new(shared).undecided()));
    }
    let mut renewed = Vec::with_capacity(counts.len());
    for (lease, count) in owned.iter().zip(counts) {
        renewed.push(match count.verdict() {
            Some(Ok(sent_at)) => {
                shared.grants.note_renewed(lease, sent_at);
                for node in count.forgot() {
                    let (shared, lease) = (Arc::clone(shared), lease.clone());
                    let again = Arc::clone(&shared);
                    again.spawn(async move { repair(&shared, node, &lease).await });
                }
                Some(RenewReply::Until { sent_at })
            }
            // Renewed on its own, the caller learns who has the lock.
            Some(Err(_)) | None => None,
        });
    }
    Ok(renewed)
}

/// Repairs nodes that have forgotten the lease: those that have reported it, and those that still
/// do.
async fn repair_remaining(
    shared: Arc<RedlockShared>,
    lease: LeaseSpec,
    forgot: Vec<usize>,
    mut rest: FanOut<Result<RenewReply, Failure>>,
) {
    for node in forgot {
        repair(&shared, node, &lease).await;
    }
    while let Some((node, reply)) = rest.next().await {
        let is_free = |not_held: &NotHeld| not_held.taken_by.is_none();
        if matches!(&reply, Ok(RenewReply::NotHeld(not_held)) if is_free(not_held)) {
            repair(&shared, node, &lease).await;
        }
    }
}

/// The metadata of a lease, as a majority of the nodes has it. Without it, observers would not see a
/// leader any more once all nodes had been repaired, one after the other.
async fn known_meta(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    limit: Moment,
) -> BTreeMap<String, String> {
    if !lease.has_meta || bug(Bug::RedlockRepairWithoutMetadata) {
        return BTreeMap::new();
    }
    match inspect(shared, &lease.name, limit).await {
        Ok(Some(found)) if found.id == lease.id => found.meta,
        _ => BTreeMap::new(),
    }
}

async fn repair(shared: &Arc<RedlockShared>, node: usize, lease: &LeaseSpec) {
    // Only while the majority that has just extended the lease still has it.
    let in_time = shared.response_timeout.min(lease.ttl / 2);
    let now = shared.clock.now();
    let meta = known_meta(shared, lease, now + in_time / 2).await;
    let store = &shared.nodes[node].store;
    let Some(connection) = store.live_connection() else {
        return;
    };
    // From here on without a pause until it is sent: a release must not overtake it.
    let Some(last_fence) = shared.grants.begin_repair(&lease.id) else {
        return;
    };
    let latest_us = connection.server_us(now + in_time);
    let repaired = store
        .repair(&connection, lease, last_fence, &meta, latest_us)
        .await;
    match repaired {
        Ok(true) => tracing::info!(
            lock = %lease.name, node = %store.target(),
            "redlock.repaired: restored the lease on a node that had lost it"
        ),
        Ok(false) => {}
        Err(failure) => {
            if let Some(in_flight) = failure.in_flight {
                shared.may_still_run(lease, node, in_flight);
            }
        }
    }
}

/// Checks that a majority still has the lease, and asks each node for an event when that changes.
pub(super) async fn watch(
    shared: &Arc<RedlockShared>,
    lease: &LeaseSpec,
    limit: Moment,
) -> Result<WatchReply, Failure> {
    let replies = shared.send_to_all(|store| {
        let lease = lease.clone();
        async move { store.watch(&lease, limit).await }
    });
    count_watches(shared, replies).await
}

/// Changes the value of a leader on all nodes; done when a majority has it.
pub(super) async fn proclaim(
    shared: &Arc<RedlockShared>,
    proclamation: &Proclamation,
    limit: Moment,
) -> Result<WatchReply, Failure> {
    let replies = shared.send_to_all(|store| {
        let proclamation = proclamation.clone();
        async move { store.proclaim(&proclamation, limit).await }
    });
    count_watches(shared, replies).await
}

/// Whether a majority has the lease. The nodes that reply later are not forgotten.
async fn count_watches(
    shared: &Arc<RedlockShared>,
    mut replies: FanOut<Result<WatchReply, Failure>>,
) -> Result<WatchReply, Failure> {
    let mut count = RenewCount::new(shared);
    count.sent_at = Some(shared.clock.now());
    while count.verdict().is_none() {
        let next = if count.held + count.gone.len() < shared.majority {
            replies.next().await
        } else {
            // The replies so far disagree: the lease is just changing. A node that hangs must not
            // keep us from checking again.
            let next = tokio::time::timeout(GRACE, replies.next()).await;
            next.unwrap_or(None)
        };
        match next {
            None => return Err(count.undecided()),
            Some((_, Ok(WatchReply::Held))) => count.held += 1,
            Some((node, Ok(WatchReply::NotHeld(not_held)))) => {
                count.gone.push((node, not_held.taken_by));
            }
            Some((_, Err(failure))) => count.failed(failure),
        }
    }
    // The others are watched, or hear the value, as well.
    shared.spawn(async move { while replies.next().await.is_some() {} });
    match count.verdict() {
        Some(Ok(_)) => Ok(WatchReply::Held),
        Some(Err(not_held)) => Ok(WatchReply::NotHeld(not_held)),
        None => Err(count.undecided()),
    }
}

/// Continues a lease under another id on a majority of the nodes.
pub(super) async fn adopt(
    shared: &Arc<RedlockShared>,
    from: &LeaseId,
    lease: &LeaseSpec,
    limit: Moment,
) -> Result<RenewReply, Failure> {
    let mut replies = shared.send_to_all(|store| {
        let (from, lease) = (from.clone(), lease.clone());
        async move {
            store.store_longest_ttl(&lease, limit).await?;
            store.adopt(&from, &lease, limit).await
        }
    });
    let mut count = RenewCount::new(shared);
    while let Some((node, reply)) = replies.next().await {
        count.renewal(node, reply);
        if count.held >= shared.majority {
            break;
        }
    }
    match count.verdict() {
        Some(Ok(sent_at)) => {
            shared.grants.note_adopted(lease, sent_at, None);
            let (shared, lease) = (Arc::clone(shared), lease.clone());
            let again = Arc::clone(&shared);
            again.spawn(async move {
                while replies.next().await.is_some() {}
                learn_fence(&shared, &lease, limit).await;
            });
            Ok(RenewReply::Until { sent_at })
        }
        Some(Err(not_held)) => {
            // Some nodes may have it under the new id by now.
            let release = super::release::release(shared, lease, None, limit).await;
            debug_assert!(!matches!(release, Ok(ReleaseReply::WasHeld { .. })));
            Ok(RenewReply::NotHeld(not_held))
        }
        None => {
            let failure = count.undecided();
            let in_flight = InFlight {
                connection: None,
                latest_us: failure.in_flight.map_or(0, |in_flight| in_flight.latest_us),
            };
            Err(Failure {
                in_flight: Some(in_flight),
                ..failure
            })
        }
    }
}

/// Reads the last fence of an adopted lease: without it no node can be repaired.
async fn learn_fence(shared: &RedlockShared, lease: &LeaseSpec, limit: Moment) {
    for node in &shared.nodes {
        if let Ok(Some(found)) = node.store.inspect(&lease.name, limit).await
            && found.id == lease.id
            && let Some(fence) = found.fence
        {
            let now = shared.clock.now();
            return shared
                .grants
                .note_adopted(lease, now.before(lease.ttl), Some(fence.get()));
        }
    }
}
