//! Who holds a lock: the lease that a majority of the nodes has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::fan_out::FanOut;
use crate::leader::{term_of, version_of};
use crate::lease::{ClientId, Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::redis::OFFER_PREFIX;
use crate::store::{Failure, InspectResult, LockState, Store};

/// The lease that a majority of the nodes has.
pub(super) async fn inspect(
    shared: &Arc<RedlockShared>,
    name: &LockName,
    limit: Moment,
) -> Result<Option<LockState>, Failure> {
    let mut replies = shared.send_to_all(|store| {
        let name = name.clone();
        async move { store.inspect(&name, limit).await }
    });
    decide(shared, &mut replies).await
}

/// The same, and asks each node for an event when that changes there.
pub(super) async fn observe(
    shared: &Arc<RedlockShared>,
    client: ClientId,
    name: &LockName,
    limit: Moment,
) -> Result<Option<LockState>, Failure> {
    let mut replies = shared.send_to_all(|store| {
        let name = name.clone();
        async move { store.observe(client, &name, limit).await }
    });
    let state = decide(shared, &mut replies).await;
    // The others tell of changes as well.
    shared.spawn(async move { while replies.next().await.is_some() {} });
    state
}

/// Counts the replies until the rest cannot change the result.
async fn decide(
    shared: &RedlockShared,
    replies: &mut FanOut<InspectResult>,
) -> Result<Option<LockState>, Failure> {
    let mut counts = HolderCount::default();
    while !counts.is_decided(shared)
        && let Some((_, reply)) = replies.next().await
    {
        counts.count(reply);
    }
    counts.verdict(shared)
}

/// The same for many locks, in few batches per node.
pub(super) async fn inspect_all(
    shared: &Arc<RedlockShared>,
    names: &[LockName],
    limit: Moment,
) -> Result<Vec<InspectResult>, Failure> {
    let names: Arc<[LockName]> = names.into();
    let mut replies = shared.send_to_all(|store| {
        let names = Arc::clone(&names);
        async move { store.inspect_all(&names, limit).await }
    });
    let mut counts: Vec<HolderCount> = names.iter().map(|_| HolderCount::default()).collect();
    let (mut answered, mut failure) = (0, None);
    let open = |counts: &[HolderCount]| counts.iter().any(|one| !one.is_decided(shared));
    while open(&counts)
        && let Some((_, reply)) = replies.next().await
    {
        match reply {
            Err(failed) => failure = Some(failed),
            Ok(states) => {
                answered += 1;
                for (count, state) in counts.iter_mut().zip(states) {
                    count.count(state);
                }
            }
        }
    }
    match failure {
        Some(failure) if answered < shared.majority && !names.is_empty() => Err(failure),
        _ => Ok(counts.into_iter().map(|it| it.verdict(shared)).collect()),
    }
}

/// What the nodes report about one lock.
#[derive(Default)]
struct HolderCount {
    by_lease: HashMap<LeaseId, Vec<LockState>>,
    free: usize,
    failure: Option<Failure>,
}

impl HolderCount {
    fn count(&mut self, reply: InspectResult) {
        match reply {
            Ok(None) => self.free += 1,
            // Nobody holds it yet.
            Ok(Some(found)) if found.id.as_str().starts_with(OFFER_PREFIX) => self.free += 1,
            Err(failed) => self.failure = Some(failed),
            Ok(Some(found)) => {
                let same = self.by_lease.entry(found.id.clone()).or_default();
                same.push(found);
            }
        }
    }

    /// Whether the remaining replies cannot change the result.
    fn is_decided(&self, shared: &RedlockShared) -> bool {
        // Of a leader, a majority must also agree on the term.
        let has_majority = |same: &Vec<LockState>| {
            let is_candidate = same.first().is_some_and(|first| first.id.is_candidate());
            let agree = !is_candidate || agreed_term(same, shared.majority).is_some();
            same.len() >= shared.majority && agree
        };
        self.free > shared.nodes.len() - shared.majority || self.by_lease.values().any(has_majority)
    }

    fn verdict(self, shared: &RedlockShared) -> InspectResult {
        let answered = self.free + self.by_lease.values().map(Vec::len).sum::<usize>();
        let mut leases = self.by_lease.into_values();
        match self.failure {
            Some(failure) if answered < shared.majority => Err(failure),
            _ => Ok(leases
                .find(|same| same.len() >= shared.majority)
                .and_then(|same| majority_of(same, shared.majority))),
        }
    }
}

/// The term that a majority of all nodes has for a lease. Until a candidate is elected, nodes may have
/// the terms of different rounds of votes.
fn agreed_term(same: &[LockState], majority: usize) -> Option<Fence> {
    let terms = same.iter().filter_map(|found| term_of(&found.meta));
    let count = |term: Fence| {
        let others = same.iter().filter_map(|found| term_of(&found.meta));
        others.filter(|other| *other == term).count()
    };
    terms.into_iter().find(|term| count(*term) >= majority)
}

/// The metadata of a leader, if a majority of all nodes knows its term: with the last value that it
/// proclaimed, which any majority has heard of.
fn agreed_meta(same: &[LockState], majority: usize) -> BTreeMap<String, String> {
    let Some(term) = agreed_term(same, majority) else {
        return BTreeMap::new();
    };
    let of_term = same.iter().filter(|it| term_of(&it.meta) == Some(term));
    let last = of_term.max_by_key(|found| version_of(&found.meta));
    last.map(|found| found.meta.clone()).unwrap_or_default()
}

/// One of several equal states, which ends when the first of them does.
fn majority_of(mut same: Vec<LockState>, majority: usize) -> Option<LockState> {
    let is_candidate = same.first().is_some_and(|first| first.id.is_candidate());
    let leader_meta = is_candidate.then(|| agreed_meta(&same, majority));
    same.sort_by_key(|found| {
        (
            found.meta.is_empty(),
            found.remaining.unwrap_or(Duration::MAX),
        )
    });
    let remaining = same.iter().filter_map(|found| found.remaining).min();
    let fence = same.iter().filter_map(|found| found.fence).max();
    let found = same.into_iter().next()?;
    Some(LockState {
        remaining,
        fence,
        meta: leader_meta.unwrap_or(found.meta),
        readers: found.readers,
        id: found.id,
    })
}
