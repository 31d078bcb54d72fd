//! The keeper: looks which items there are, has a worker for each, and keeps their gates in order.

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

/// Closed items are looked at every so many times only: there may be many of them.
const CLOSED_EVERY: u64 = 8;
/// For a worker that gives up to do so by itself.
const STOP_MARGIN: Duration = Duration::from_millis(500);
/// How often to look for what can be forgotten.
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

/// A worker that runs.
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
            // Before looking: what is opened meanwhile wakes us at once.
            let opened = core.opened.notified();
            // A look that is given up half-way is looked again by somebody else.
            let stop = self.stop.clone();
            if let Some(Err(error)) = stop.run_until_cancelled(self.look()).await {
                warn!(%error, "a consumer could not look after all items");
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
        // They look at the time themselves, but not while they wait for a ledger's answer.
        let end = Instant::now() + self.options.stop_within + STOP_MARGIN;
        for working in self.workers.into_values() {
            // A worker that panicked has nothing left to stop, and one that is late is aborted.
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
        // First the workers: they need nobody's answer.
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

    /// Sees to it that somebody works on each queue of `item`.
    fn work_on(&mut self, item: &Item) {
        for shelf in 0..self.core.gate.shelves_of(item) {
            self.work_on_shelf(&item.name, shelf);
        }
    }

    fn work_on_shelf(&mut self, item: &str, shelf: u64) {
        let queue = (item.to_owned(), shelf);
        // One that is about to end is replaced at the next look, when it has acknowledged its last.
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
            // Goes on by itself; the next look will see.
            _ => drop(background::begin(&self.core, &item.name)),
        }
        Ok(())
    }

    /// Closed items need a worker while their queue is not empty, and changes may be left to tell.
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

    /// Forgets changes that everybody knows, and at the gate items that are long over.
    async fn forget(&self, on_sale: &[Item], closed: &[Item]) -> Result<()> {
        let now = SystemTime::now();
        let before = now.checked_sub(self.options.changes_kept);
        for item in on_sale.iter().chain(closed) {
            let standing = self.core.gate.standing(&item.name).await?;
            let told = standing.map_or(item.change, |standing| standing.change);
            if item.state == ItemState::Closed && self.is_long_over(item, now).await? {
                let forgotten = self.core.gate.forget(&item.name).await?;
                self.core.commits.forget(&item.name);
                debug!(item = item.name, forgotten, "a closed item is long over");
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
            // It was forgotten, so it is at least as old as changes are kept.
            None => self.options.changes_kept >= kept,
        })
    }
}

/// Whether the gate sells what the ledger has, apart from changes that it was not told yet.
fn is_in_order(standing: &Standing, item: &Item) -> bool {
    standing.current && standing.state.is_some() && standing.epoch == item.epoch
}
