//! Entries that were deleted from a queue by hand: noticed while the item is on sale.
//!
//! An entry leaves its queue only after the ledger has it. So what is older than the oldest entry of
//! a queue is in the ledger, or it was deleted by hand, for example with `XTRIM`.

use std::collections::HashSet;
use std::sync::Arc;

use tracing::error;

use super::{DEAD_MAX, MISSING_MAX};
use crate::core::Core;
use crate::error::Result;
use crate::failpoint::bug;
use crate::gate::Standing;
use crate::item::Item;
use crate::ledger::Stretch;
use crate::order::OrderId;
use crate::rebuild::{self, Need};

/// Looks for entries that left the queue without having reached the ledger. If there are some, the
/// item is rebuilt, which returns their units and announces them as lost.
///
/// The gate was read first: whatever it no longer had then is in the ledger by now.
pub(crate) async fn look(core: &Arc<Core>, item: &Item, standing: &Standing) -> Result<()> {
    if bug("trimmed-queue-unseen") {
        return Ok(());
    }
    let mut checked = core.watched.of(&item.name, item.epoch);
    checked.until.resize(standing.queues.len(), 0);
    let mut gone = Vec::new();
    for (shelf, ends) in (0..).zip(&standing.queues) {
        let until = &mut checked.until[usize::try_from(shelf).unwrap_or_default()];
        let settled = ends.settled(item.epoch);
        if settled <= *until {
            continue;
        }
        let stretch = Stretch {
            epoch: item.epoch,
            shelf,
            spread: core.gate.shelves_of(item).max(1),
            from: *until,
            to: settled,
        };
        gone.extend(gone_from(core, &item.name, &stretch).await?);
        *until = settled;
    }
    if let (Some(first), Some(last)) = (gone.first(), gone.last()) {
        error!(
            item = item.name, orders = gone.len(), %first, %last,
            "entries were deleted from the queue before the ledger had them: the gate is rebuilt"
        );
        rebuild::in_background(core, &item.name, Need::Always).await?;
    }
    core.watched.store(&item.name, checked);
    Ok(())
}

async fn gone_from(core: &Core, item: &str, stretch: &Stretch) -> Result<Vec<OrderId>> {
    let arrived = core.ledger.arrived_in(item, stretch).await?;
    if arrived >= stretch.to - stretch.from {
        return Ok(Vec::new());
    }
    let missing = core.ledger.missing(item, stretch, MISSING_MAX).await?;
    let dead = core.gate.dead(item, DEAD_MAX).await?;
    let dead: HashSet<OrderId> = dead.into_iter().map(|(entry, _)| entry.id).collect();
    let orders = missing.into_iter();
    let orders = orders.map(|number| OrderId::new(item, stretch.epoch, number));
    Ok(orders.filter(|order| !dead.contains(order)).collect())
}
