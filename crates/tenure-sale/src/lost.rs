//! Lost orders: what the gate accepted and the ledger never got.
//!
//! The gate numbers the entries of an epoch without gaps, so the ledger itself shows what is missing.
//! The process that accepted an order may be gone, and its buyer need not ask.

pub(crate) mod watch;
pub(crate) mod watched;

use std::collections::{HashMap, HashSet};

use tracing::{error, warn};

use crate::core::Core;
use crate::entry::Lost;
use crate::error::Result;
use crate::failpoint::bug;
use crate::gate::Page;
use crate::ledger::{Stretch, Uncounted};
use crate::order::{OrderId, OrderState};

/// Orders in one ledger transaction.
const BATCH: usize = 500;
/// Missing numbers that are read at once.
const MISSING_MAX: usize = 10_000;
/// How many dead letters are read: they are not lost.
const DEAD_MAX: usize = 10_000;

/// Records orders of an ended epoch as lost, and counts and announces those that were not known to
/// be.
pub(crate) async fn announce(core: &Core, item: &str, epoch: u64, orders: &[Lost]) -> Result<()> {
    for batch in orders.chunks(BATCH) {
        let new = core.ledger.lose(item, epoch, batch).await?;
        if let (Some(first), Some(last)) = (new.first(), new.last()) {
            let orders = new.len();
            core.counters.lost.add(orders);
            error!(
                item, orders, %first, %last,
                "accepted orders were lost with the gate's data before they reached the ledger"
            );
        }
        let told: Vec<OrderId> = batch
            .iter()
            .filter(|lost| !lost.is_no_order)
            .map(|lost| OrderId::new(item, epoch, lost.number))
            .collect();
        let told = told.iter().map(|order| (order, OrderState::Lost));
        core.hub.tell(told);
    }
    Ok(())
}

/// Finds the lost orders of all epochs of an item that have ended.
pub(crate) async fn find(core: &Core, item: &str) -> Result<()> {
    if bug("lost-orders-unsaid") {
        return Ok(());
    }
    let uncounted = core.ledger.uncounted(item).await?;
    let epochs: HashSet<u64> = uncounted.iter().map(|ended| ended.epoch).collect();
    for epoch in epochs {
        let shelves = uncounted.iter().filter(|ended| ended.epoch == epoch);
        find_in_epoch(core, item, epoch, shelves).await?;
    }
    Ok(())
}

/// The same while the item is loaded anew, because then the gate may still know whose they were. If
/// it fails, a consumer finds them later.
pub(crate) async fn find_before_load(core: &Core, item: &str) {
    if let Err(error) = find(core, item).await {
        warn!(item, %error, "lost orders could not be looked for yet");
    }
    if let Err(error) = core.gate.forget_before(item).await {
        warn!(item, %error, "answers of an epoch that has ended were not deleted from the gate");
    }
}

async fn find_in_epoch(
    core: &Core,
    item: &str,
    epoch: u64,
    shelves: impl Iterator<Item = &Uncounted>,
) -> Result<()> {
    let mut arrived = None;
    for ended in shelves {
        let mut entries = ended.entries;
        // A gate in memory says *accepted* when the ledger has committed it.
        if !core.gate.is_memory() {
            let arrived = match &mut arrived {
                Some(arrived) => arrived,
                None => arrived.insert(core.ledger.arrived(item, epoch, ended.spread).await?),
            };
            let arrived = arrived.get(&ended.shelf).copied().unwrap_or_default();
            entries = entries.max(arrived.end);
            if arrived.count < entries {
                find_in_shelf(core, item, ended, entries).await?;
            }
            if ended.is_open {
                warn!(
                    item,
                    epoch,
                    shelf = ended.shelf,
                    entries,
                    "the gate lost its data in this epoch: orders from this number on that were \
                     accepted are lost, too"
                );
            }
        }
        core.ledger.counted(item, *ended, entries).await?;
    }
    Ok(())
}

async fn find_in_shelf(core: &Core, item: &str, ended: &Uncounted, entries: u64) -> Result<()> {
    let stretch = Stretch {
        epoch: ended.epoch,
        shelf: ended.shelf,
        spread: ended.spread,
        from: 0,
        to: entries,
    };
    let dead = core.gate.dead(item, DEAD_MAX).await?;
    let dead: HashSet<OrderId> = dead.into_iter().map(|(entry, _)| entry.id).collect();
    loop {
        let missing = core.ledger.missing(item, &stretch, MISSING_MAX).await?;
        let all = missing.len();
        let is_dead = |number: u64| dead.contains(&OrderId::new(item, ended.epoch, number));
        let numbers = missing.into_iter().filter(|number| !is_dead(*number));
        let mut lost: HashMap<u64, Lost> = numbers
            .map(|number| (number, Lost::unknown(number)))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        recall(core, item, ended.epoch, &mut lost).await?;
        let mut lost: Vec<Lost> = lost.into_values().collect();
        lost.sort_unstable_by_key(|lost| lost.number);
        announce(core, item, ended.epoch, &lost).await?;
        if all < MISSING_MAX {
            return Ok(());
        }
    }
}

/// Finds out whose these orders were, as far as the gate knows.
async fn recall(core: &Core, item: &str, epoch: u64, lost: &mut HashMap<u64, Lost>) -> Result<()> {
    let mut from = Some(Page::at_shelf(0));
    while let Some(page) = from {
        let (told, next) = core.gate.before(item, page).await?;
        for (order, known) in told {
            if order.epoch() == epoch
                && let Some(lost) = lost.get_mut(&order.number())
            {
                *lost = known;
            }
        }
        from = next;
    }
    Ok(())
}
