//! Who holds a lock: whoever has a majority of the nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, Found, Store};

/// Who has a majority of the nodes.
pub(super) async fn look(
    shared: &Arc<Shared>,
    name: &LockName,
    limit: Moment,
) -> Result<Option<Found>, Failure> {
    let mut round = shared.ask_all(|store| {
        let name = name.clone();
        async move { store.look(&name, limit).await }
    });
    let mut by_lease: HashMap<LeaseId, Vec<Found>> = HashMap::new();
    let (mut free, mut failure) = (0, None);
    let nodes = shared.voters.len();
    while let Some((_, answer)) = round.next().await {
        match answer {
            Ok(None) => free += 1,
            Err(failed) => failure = Some(failed),
            Ok(Some(found)) => {
                let same = by_lease.entry(found.id.clone()).or_default();
                same.push(found);
                if same.len() >= shared.majority {
                    return Ok(majority_of(std::mem::take(same)));
                }
            }
        }
        if free > nodes - shared.majority {
            return Ok(None);
        }
    }
    let answered = free + by_lease.values().map(Vec::len).sum::<usize>();
    match failure {
        Some(failure) if answered < shared.majority => Err(failure),
        _ => Ok(None),
    }
}

/// One of several that say the same, which ends when the first of them does.
fn majority_of(mut same: Vec<Found>) -> Option<Found> {
    same.sort_by_key(|found| {
        (
            found.meta.is_empty(),
            found.remaining.unwrap_or(Duration::MAX),
        )
    });
    let remaining = same.iter().filter_map(|found| found.remaining).min();
    let fence = same.iter().filter_map(|found| found.fence).max();
    let found = same.into_iter().next()?;
    Some(Found {
        remaining,
        fence,
        ..found
    })
}
