//! A ledger that was put back: restored from a backup, or replaced by a standby that lagged. Its
//! gate knows later orders. It stops, because it cannot know which of them are to be kept; an
//! operator decides, and has the item rebuilt.

use tracing::{error, warn};

use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::bug;
use crate::gate::{Page, Standing};
use crate::item::Item;

/// The page for operators.
const PAGE: &str = "docs/restoring.md";

/// Whether the gate knows more than the ledger ever did. Read the gate first: the ledger is always
/// ahead of a gate that was loaded from it.
pub(crate) fn is_ahead(standing: &Standing, item: &Item) -> bool {
    if bug("put-back-unseen") {
        return false;
    }
    let queue = standing.newest_in_queue();
    if queue > item.epoch {
        return true;
    }
    if standing.state.is_none() && !standing.stopped {
        // A load is begun under the next epoch before the ledger begins it.
        return standing.epoch > item.epoch + 1;
    }
    let at_once = standing.epoch == item.epoch && standing.change > item.change;
    standing.epoch > item.epoch || at_once
}

/// The newest epoch under which the gate accepted anything.
pub(super) fn newest_epoch(standing: &Standing) -> u64 {
    let loaded = standing.state.is_some() || standing.stopped;
    let epoch = if loaded { standing.epoch } else { 0 };
    epoch.max(standing.newest_in_queue())
}

/// Checks the gate of an item, and stops it if the ledger was put back.
pub(crate) async fn check(core: &Core, item: &str) -> Result<()> {
    let Some(standing) = core.gate.standing(item).await? else {
        return Ok(());
    };
    let known = core.item(item).await?;
    if !is_ahead(&standing, &known) {
        return Ok(());
    }
    Err(stop(core, &known, &standing).await)
}

/// Stops the gate, and says why.
async fn stop(core: &Core, item: &Item, standing: &Standing) -> Error {
    let error = told(item, standing);
    if !standing.stopped {
        match core.gate.stop(&item.name).await {
            Ok(()) => error!(item = item.name, %error, "the gate was stopped"),
            Err(cause) => warn!(item = item.name, %cause, "the gate could not be stopped"),
        }
    }
    error
}

/// Why nobody but an operator rebuilds it.
pub(super) fn told(item: &Item, standing: &Standing) -> Error {
    let message = format!(
        "the gate of `{}` has epoch {} and change {}, this ledger only epoch {} and change {}: the \
         ledger was restored from an older copy, or the gate was loaded from another ledger; see \
         {PAGE}, then rebuild the item",
        item.name,
        standing.epoch.max(newest_epoch(standing)),
        standing.change,
        item.epoch,
        item.change
    );
    Error::new(ErrorKind::Conflict, message)
}

/// Stores orders that the gate knows and the ledger has forgotten.
pub(super) async fn remember(core: &Core, item: &str) -> Result<()> {
    let (mut from, mut forgotten) = (Some(Page::at_shelf(0)), 0);
    while let Some(page) = from {
        let (told, next) = core.gate.before(item, page).await?;
        if !told.is_empty() {
            forgotten += core.ledger.remember(item, &told).await?;
        }
        from = next;
    }
    if forgotten > 0 {
        error!(
            item,
            forgotten,
            "orders that the ledger had forgotten are dead letters: requeue or discard each"
        );
    }
    Ok(())
}
