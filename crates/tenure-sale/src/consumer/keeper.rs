//! The keeper: finds the items, runs a worker for each, and keeps their gates in order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::options::ConsumerOptions;
use super::worker::Worker;
use crate::core::Core;
use crate::error::Result;
use crate::gate::Standing;
use crate::item::{Item, ItemState};
use crate::rebuild::background;
use crate::{relay, sweeper};

/// Closed items are checked only every this many rounds: there may be many of them.
const CLOSED_EVERY: u64 = 8;
/// Time for a worker to stop by itself.
const STOP_MARGIN: Duration = Duration::from_millis(500);
/// How often to look for data that can be deleted.
const FORGET_EVERY: Duration = Duration::from_mins(1);

pub(super) struct Keeper {
    core: Arc<Core>,
    name: String,
    options: ConsumerOptions,
    stop: CancellationToken,
    /// By item and shelf.
    workers: HashMap<(String, u64), Working>,
    looks: u64,
    forgets_at: Instant,
}

/// A running worker.
struct Working {
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
}

impl Keeper {
    pub(super) fn new(
        core: Arc<Core>,
        name: String,
        options: ConsumerOptions,
        stop: CancellationToken,
    ) -> Self {
        Self {
            core,
            name,
            options,
            stop,
            workers: HashMap::new(),
            looks: 0,
            forgets_at: Instant::now() + FORGET_EVERY,
        }
    }

    pub(super) async fn run(mut self) {
        let every = self.options.sweep_every;
        let sweeping = sweeper::run(Arc::clone(&self.core), every, self.stop.clone());
        let _sweeper = AbortOnDropHandle::new(tokio::spawn(sweeping));
        let core = Arc::clone(&self.core);
        while !self.stop.is_cancelled() {
            // Before the round: an item opened meanwhile wakes us at once.
            let opened = core.opened.notified();
            // If a round is abandoned halfway, another consumer or the next round does it.
            let stop = self.stop.clone();
            if let Some(Err(error)) = stop.run_until_cancelled(self.look()).await {
                warn!(%error, "a consumer could not check all items");
            }
            let pause = sleep(self.options.look_every);
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = opened => {}
                () = pause => {}
            }
        }
        self.end().await;
    }

    /// Lets the workers finish what they have.
    async fn end(self) {
        for working in self.workers.values() {
            working.stop.cancel();
        }
        // They check the time themselves, but not while they wait for a reply of the ledger.
        let end = Instant::now() + self.options.stop_within + STOP_MARGIN;
        for working in self.workers.into_values() {
            // A worker that panicked needs no stopping, and one that is late is aborted.
            let _ = timeout_at(end, working.running).await;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let with_closed = self.looks.is_multiple_of(CLOSED_EVERY);
        self.looks += 1;
        let on_sale = self
            .core
            .ledger
            .items(&[ItemState::Open, ItemState::Paused]);
        let on_sale = on_sale.await?;
        // Workers first: they do not depend on a reply.
        for item in &on_sale {
            self.work_on(item);
        }
        for item in &on_sale {
            self.keep(item).await?;
        }
        if with_closed {
            let closed = self.core.ledger.items(&[ItemState::Closed]).await?;
            self.look_at_closed(&on_sale, &closed).await?;
            if Instant::now() >= self.forgets_at {
                self.forgets_at = Instant::now() + FORGET_EVERY;
                self.forget(&on_sale, &closed).await?;
            }
        }
        Ok(())
    }

    /// Makes sure that each queue of `item` has a worker.
    fn work_on(&mut self, item: &Item) {
        for shelf in 0..self.core.gate.shelves_of(item) {
            self.work_on_shelf(&item.name, shelf);
        }
    }

    fn work_on_shelf(&mut self, item: &str, shelf: u64) {
        let queue = (item.to_owned(), shelf);
        // A worker that is about to end is replaced in the next round, after its last
        // acknowledgement.
        let works = |working: &Working| !working.running.is_finished();
        if self.workers.get(&queue).is_some_and(works) {
            return;
        }
        let stop = CancellationToken::new();
        let worker = Worker {
            core: Arc::clone(&self.core),
            item: item.to_owned(),
            shelf,
            name: self.name.clone(),
            options: self.options.clone(),
            stop: stop.clone(),
        };
        let running = AbortOnDropHandle::new(tokio::spawn(worker.run()));
        let working = Working { stop, running };
        self.workers.insert(queue, working);
    }

    /// Keeps the gate of an item on sale in order.
    async fn keep(&self, item: &Item) -> Result<()> {
        let standing = self.core.gate.standing(&item.name).await?;
        match standing {
            Some(standing) if is_in_order(&standing, item) => {
                if standing.moving > 0 {
                    self.core.gate.finish_moves(&item.name).await?;
                }
                if standing.change < item.change {
                    relay::relay(&self.core, &item.name).await?;
                }
            }
            // It continues in the background; the next round checks it.
            _ => drop(background::begin(&self.core, &item.name)),
        }
        Ok(())
    }

    /// Closed items need a worker while their queue is not empty, and changes may still have to be
    /// sent.
    async fn look_at_closed(&mut self, on_sale: &[Item], closed: &[Item]) -> Result<()> {
        let mut needed: HashSet<&str> = on_sale.iter().map(|item| item.name.as_str()).collect();
        for item in closed {
            let Some(standing) = self.core.gate.standing(&item.name).await? else {
                continue;
            };
            if standing.queued > 0 {
                needed.insert(&item.name);
                self.work_on(item);
            }
            if is_in_order(&standing, item) && standing.change < item.change {
                relay::relay(&self.core, &item.name).await?;
            }
        }
        for ((item, _), working) in &self.workers {
            if !needed.contains(item.as_str()) {
                working.stop.cancel();
            }
        }
        let ended =
            |working: &Working| working.stop.is_cancelled() && working.running.is_finished();
        self.workers.retain(|_, working| !ended(working));
        Ok(())
    }

    /// Deletes changes that all gates have applied, and data at the gate about items closed long
    /// ago.
    async fn forget(&self, on_sale: &[Item], closed: &[Item]) -> Result<()> {
        let now = SystemTime::now();
        let before = now.checked_sub(self.options.changes_kept);
        for item in on_sale.iter().chain(closed) {
            let standing = self.core.gate.standing(&item.name).await?;
            let told = standing.map_or(item.change, |standing| standing.change);
            if item.state == ItemState::Closed && self.is_long_over(item, now).await? {
                let forgotten = self.core.gate.forget(&item.name).await?;
                self.core.commits.forget(&item.name);
                debug!(
                    item = item.name,
                    forgotten, "removed a closed item from the gate"
                );
            }
            if let Some(before) = before {
                let ledger = &self.core.ledger;
                ledger.forget_changes(&item.name, told, before).await?;
            }
        }
        Ok(())
    }

    /// Whether nothing has happened to a closed item for as long as its answers are kept.
    async fn is_long_over(&self, item: &Item, now: SystemTime) -> Result<bool> {
        let before_last = item.change.saturating_sub(1);
        let last = self.core.ledger.changes(&item.name, before_last, 1).await?;
        let kept = item.terms.answers_kept;
        Ok(match last.first() {
            Some(last) => now.duration_since(last.at).is_ok_and(|since| since > kept),
            // Its changes were deleted, so it is at least as old as changes are kept.
            None => self.options.changes_kept >= kept,
        })
    }
}

/// Whether the gate sells what the ledger has, apart from changes that were not sent yet.
fn is_in_order(standing: &Standing, item: &Item) -> bool {
    standing.current && standing.state.is_some() && standing.epoch == item.epoch
}
