//! Settling entries: into the ledger, then out of the queue.
//!
//! | the ledger says | then |
//! |---|---|
//! | settled, known, stale | acknowledge |
//! | refused | bury |
//! | ahead | the ledger was put back: all stays in the queue, and the gate stops |
//! | an error for the batch | entry by entry |
//! | a conflict with other transactions | all stays in the queue: no entry is at fault |
//! | an error for one entry, but it responds otherwise | leave it in the queue; after some deliveries, bury it |
//! | an error, and it does not respond | all stays in the queue: no entry is at fault |

use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, error, warn};

use crate::core::Core;
use crate::entry::{Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::{bug, failpoint};
use crate::ledger::{Fate, was_kept_waiting};
use crate::order::{OrderId, OrderState};
use crate::rebuild;

/// After this many deliveries, an entry that the ledger does not accept is buried.
pub(crate) const DELIVERIES_MAX: u64 = 5;

/// Before an entry is buried it is retried this often, with this pause before each try.
const LAST_TRIES: u32 = 3;
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// The effect of settling on the stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Units were returned: the gate should be informed.
    pub(crate) released: bool,
    /// The ledger rejected what the gate had accepted.
    pub(crate) rejected: bool,
}

/// Commits entries of one item to the ledger and removes them from the queue. `Ok` means that all
/// of them were handled; `Err` that they should be retried, which is harmless for those already
/// handled.
pub(crate) async fn settle(
    core: &Core,
    item: &str,
    entries: &[Entry],
    deliveries_max: u64,
) -> Result<Settled> {
    if bug("ack-before-commit") {
        let ids: Vec<OrderId> = entries.iter().map(|entry| entry.id.clone()).collect();
        core.gate.acknowledge(item, &ids).await?;
    }
    failpoint("consumer.before_commit");
    match commit(core, item, entries).await {
        Ok(fates) => conclude(core, item, entries, fates).await,
        Err(cause) if was_kept_waiting(&cause) => Err(cause),
        Err(cause) => {
            core.counters.batches_failed.one();
            debug!(item, entries = entries.len(), %cause, "the ledger did not accept a batch");
            one_by_one(core, item, entries, deliveries_max, cause).await
        }
    }
}

async fn commit(core: &Core, item: &str, entries: &[Entry]) -> Result<Vec<Fate>> {
    let turn = core.commits.turn(item);
    let _turn = turn.lock().await;
    core.ledger.commit(entries).await
}

async fn one_by_one(
    core: &Core,
    item: &str,
    entries: &[Entry],
    deliveries_max: u64,
    cause: Error,
) -> Result<Settled> {
    // An unavailable ledger is not asked once per entry.
    let mut all = is_there(core, item, cause).await?;
    for entry in entries {
        let single = std::slice::from_ref(entry);
        let settled = match commit(core, item, single).await {
            Ok(fates) => conclude(core, item, single, fates).await?,
            Err(cause) if was_kept_waiting(&cause) => return Err(cause),
            Err(cause) => set_aside(core, item, entry, deliveries_max, cause).await?,
        };
        all.released |= settled.released;
        all.rejected |= settled.rejected;
    }
    Ok(all)
}

/// An entry that the ledger did not accept on its own.
async fn set_aside(
    core: &Core,
    item: &str,
    entry: &Entry,
    deliveries_max: u64,
    mut cause: Error,
) -> Result<Settled> {
    if entry.deliveries <= deliveries_max {
        warn!(order = %entry.id, %cause, "the ledger did not accept an entry: it will be retried");
        return is_there(core, item, cause).await;
    }
    // It may have been delivered this often because consumers died: only the current error counts.
    let single = std::slice::from_ref(entry);
    for _ in 0..LAST_TRIES {
        sleep(LAST_PAUSE).await;
        match commit(core, item, single).await {
            Ok(fates) => return conclude(core, item, single, fates).await,
            Err(again) if was_kept_waiting(&again) => return Err(again),
            Err(again) => cause = again,
        }
    }
    let reason = format!("delivered {} times: {cause}", entry.deliveries);
    is_there(core, item, cause).await?;
    bury(core, item, entry, &reason).await?;
    Ok(Settled::default())
}

/// Whether the ledger responds; if not, no entry is at fault.
async fn is_there(core: &Core, item: &str, cause: Error) -> Result<Settled> {
    let answer = core.ledger.item(item).await;
    answer.map(|_| Settled::default()).map_err(|_| cause)
}

/// After the commit.
async fn conclude(core: &Core, item: &str, entries: &[Entry], fates: Vec<Fate>) -> Result<Settled> {
    failpoint("consumer.after_commit");
    core.counters.batches.one();
    let (mut settled, mut ahead) = (Settled::default(), false);
    let mut done = Vec::with_capacity(entries.len());
    let mut news = Vec::with_capacity(entries.len());
    for (entry, fate) in entries.iter().zip(fates) {
        count(core, &fate);
        if fate == Fate::Ahead {
            ahead = true;
            continue;
        }
        if let Fate::Refused(reason) = &fate {
            bury(core, item, entry, reason).await?;
            continue;
        }
        settled.released |= releases(&fate);
        settled.rejected |= fate == Fate::Settled(OrderState::Rejected);
        done.push(entry.id.clone());
        news.extend(order_of(entry).zip(state_of(entry, &fate)));
    }
    failpoint("consumer.before_ack");
    core.gate.acknowledge(item, &done).await?;
    core.followers.settled(item, &news);
    core.hub.tell(news);
    if ahead {
        rebuild::put_back::check(core, item).await?;
        let message = format!("entries of `{item}` are of an epoch that the ledger did not begin");
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    Ok(settled)
}

/// Into the ledger first: if it is unavailable, the entry stays untouched.
async fn bury(core: &Core, item: &str, entry: &Entry, reason: &str) -> Result<()> {
    core.ledger.bury(entry, reason).await?;
    core.gate.bury(item, &entry.id, reason).await?;
    core.counters.buried.one();
    error!(order = %entry.id, reason, "an entry was buried as dead: requeue or discard it");
    if let Some(order) = order_of(entry) {
        core.hub.tell([(order, OrderState::Dead)]);
    }
    Ok(())
}

/// The order that an entry is about.
fn order_of(entry: &Entry) -> Option<&OrderId> {
    match &entry.what {
        Ok(Wanted::Order { .. }) => Some(&entry.id),
        Ok(Wanted::Again { order, .. }) => Some(order),
        Ok(Wanted::Withdrawal { .. }) | Err(_) => None,
    }
}

fn state_of(entry: &Entry, fate: &Fate) -> Option<OrderState> {
    match fate {
        Fate::Settled(state) | Fate::Known(state) => Some(*state),
        Fate::Stale if matches!(entry.what, Ok(Wanted::Order { .. })) => Some(OrderState::Lost),
        // A request about an order that is already in the ledger was not done.
        Fate::Stale | Fate::Withdrawal(_) | Fate::Refused(_) | Fate::Ahead => None,
    }
}

/// Whether the ledger has a change that returns units to the gate.
fn releases(fate: &Fate) -> bool {
    match fate {
        Fate::Settled(state) => !state.holds_units(),
        Fate::Withdrawal(done) => !done,
        Fate::Known(_) | Fate::Stale | Fate::Refused(_) | Fate::Ahead => false,
    }
}

fn count(core: &Core, fate: &Fate) {
    let counters = &core.counters;
    match fate {
        Fate::Settled(state) => {
            counters.committed.one();
            if *state == OrderState::Rejected {
                counters.rejected.one();
            }
        }
        Fate::Withdrawal(_) => counters.committed.one(),
        Fate::Known(_) => counters.redelivered.one(),
        Fate::Stale => counters.stale_entries.one(),
        Fate::Refused(_) | Fate::Ahead => {}
    }
}
