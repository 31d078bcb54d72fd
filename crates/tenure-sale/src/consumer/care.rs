//! The care of items: each by itself, so that one that is broken or slow delays no other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::backoff::Backoff;
use super::options::ConsumerOptions;
use super::takeover;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::bug;
use crate::gate::Standing;
use crate::item::{Item, ItemState};
use crate::lost;
use crate::rebuild::{self, Need, background, put_back};
use crate::relay;

/// The items that are cared for.
#[derive(Default)]
pub(super) struct Care {
    /// By item; each task ends when its item has been cared for, or has rested after a failure.
    running: HashMap<String, AbortOnDropHandle<Backoff>>,
    /// Only with a seeded bug.
    halted: Arc<AtomicBool>,
}

impl Care {
    /// Cares for an item in the background, unless that is still under way or failed a moment ago.
    pub(super) async fn begin(
        &mut self,
        core: &Arc<Core>,
        item: &str,
        stop: &CancellationToken,
        caring: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        if self.halted.load(Ordering::Relaxed) {
            return;
        }
        let halted = Arc::clone(&self.halted);
        let mut backoff = match self.running.remove(item) {
            Some(running) if !running.is_finished() => {
                self.running.insert(item.to_owned(), running);
                return;
            }
            // One that panicked starts afresh.
            Some(ended) => ended.await.unwrap_or_else(|_| Backoff::new()),
            None => Backoff::new(),
        };
        let (core, stop, name) = (Arc::clone(core), stop.clone(), item.to_owned());
        let running = tokio::spawn(async move {
            match caring.await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    failed(&core, &name, &error);
                    halted.store(bug("one-item-stops-all"), Ordering::Relaxed);
                    backoff.pause(&stop).await;
                }
            }
            backoff
        });
        let running = AbortOnDropHandle::new(running);
        self.running.insert(item.to_owned(), running);
    }
}

/// What is needed to care for an item on sale.
pub(super) struct Keeping {
    pub(super) core: Arc<Core>,
    pub(super) item: Item,
    /// Whether an epoch has ended whose lost orders were not looked for.
    pub(super) counts: bool,
    /// Of the consumer.
    pub(super) name: String,
    pub(super) options: ConsumerOptions,
    pub(super) stop: CancellationToken,
}

/// Keeps the gate of an item on sale in order, finds lost orders, and takes over from consumers that
/// died.
pub(super) async fn keep(keeping: Keeping) -> Result<()> {
    let Keeping {
        core, item, counts, ..
    } = &keeping;
    let (counts, name) = (*counts, item.name.as_str());
    if counts {
        lost::find(core, name).await?;
    }
    let standing = core.gate.standing(name).await?;
    if standing
        .as_ref()
        .is_some_and(|standing| put_back::is_ahead(standing, item))
    {
        // The item was read before the gate.
        put_back::check(core, name).await?;
    }
    let Some(standing) = standing.filter(|standing| is_in_order(standing, item)) else {
        background::join(core, name).await;
        if rebuild::is_met(core, name, Need::Current).await? {
            return Ok(());
        }
        let message = format!("the gate of `{name}` must be rebuilt, and that failed");
        return Err(Error::new(ErrorKind::Stale, message));
    };
    if standing.moving > 0 {
        core.gate.finish_moves(name).await?;
    }
    if standing.change < item.change {
        relay::relay(core, name).await?;
    }
    if standing.pending > 0 {
        let (dead_after, deliveries_max) =
            (keeping.options.dead_after, keeping.options.deliveries_max);
        let taking = takeover::look(
            core,
            name,
            &keeping.name,
            dead_after,
            deliveries_max,
            &keeping.stop,
        );
        taking.await?;
    }
    lost::watch::look(core, item, &standing).await
}

/// A closed item needs a worker while its queue is not empty, and changes may still have to be
/// sent.
pub(super) async fn keep_closed(
    core: Arc<Core>,
    item: Item,
    counts: bool,
    not_empty: UnboundedSender<Item>,
) -> Result<()> {
    if counts {
        lost::find(&core, &item.name).await?;
    }
    let Some(standing) = core.gate.standing(&item.name).await? else {
        return Ok(());
    };
    if standing.queued > 0 {
        // The keeper may be gone.
        let _ = not_empty.send(item.clone());
    }
    if !is_in_order(&standing, &item) {
        return Ok(());
    }
    if standing.change < item.change {
        relay::relay(&core, &item.name).await?;
    }
    lost::watch::look(&core, &item, &standing).await
}

/// Deletes changes that all gates have applied, and data at the gate about items closed long ago.
pub(super) async fn forget(core: Arc<Core>, options: ConsumerOptions, items: Vec<Item>) {
    for item in items {
        if let Err(error) = forget_item(&core, &options, &item).await {
            failed(&core, &item.name, &error);
        }
    }
}

async fn forget_item(core: &Core, options: &ConsumerOptions, item: &Item) -> Result<()> {
    let now = SystemTime::now();
    let standing = core.gate.standing(&item.name).await?;
    let told = standing.map_or(item.change, |standing| standing.change);
    if item.state == ItemState::Closed && is_long_over(core, options, item, now).await? {
        let forgotten = core.gate.forget(&item.name).await?;
        core.commits.forget(&item.name);
        core.watched.forget(&item.name);
        debug!(
            item = item.name,
            forgotten, "removed a closed item from the gate"
        );
    }
    if let Some(before) = now.checked_sub(options.changes_kept) {
        core.ledger.forget_changes(&item.name, told, before).await?;
    }
    Ok(())
}

/// Whether nothing has happened to a closed item for as long as its answers are kept.
async fn is_long_over(
    core: &Core,
    options: &ConsumerOptions,
    item: &Item,
    now: SystemTime,
) -> Result<bool> {
    let before_last = item.change.saturating_sub(1);
    let last = core.ledger.changes(&item.name, before_last, 1).await?;
    let kept = item.terms.answers_kept;
    Ok(match last.first() {
        Some(last) => now.duration_since(last.at).is_ok_and(|since| since > kept),
        // Its changes were deleted, so it is at least as old as changes are kept.
        None => options.changes_kept >= kept,
    })
}

fn failed(core: &Core, item: &str, error: &Error) {
    core.counters.care_failed.one();
    warn!(item, %error, "an item could not be cared for: others are, and it is tried again");
}

/// Whether the gate sells what the ledger has, apart from changes that were not sent yet.
fn is_in_order(standing: &Standing, item: &Item) -> bool {
    standing.current && standing.state.is_some() && standing.epoch == item.epoch
}
