//! The keeper: finds the items, runs a worker for each, and has each cared for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::care::{self, Care};
use super::options::ConsumerOptions;
use super::takeover;
use super::worker::Worker;
use crate::core::Core;
use crate::error::Result;
use crate::item::{Item, ItemState};
use crate::sweeper;

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
    care: Care,
    /// Reports closed items whose queue is not empty.
    not_empty: (UnboundedSender<Item>, UnboundedReceiver<Item>),
    /// When that was last reported, in looks.
    closed_with_entries: HashMap<String, u64>,
    looks: u64,
    forgets_at: Instant,
    forgetting: Option<AbortOnDropHandle<()>>,
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
            care: Care::default(),
            not_empty: mpsc::unbounded_channel(),
            closed_with_entries: HashMap::new(),
            looks: 0,
            forgets_at: Instant::now() + FORGET_EVERY,
            forgetting: None,
        }
    }

    pub(super) async fn run(mut self) {
        let every = self.options.sweep_every;
        let sweeping = sweeper::run(Arc::clone(&self.core), every, self.stop.clone());
        let _sweeper = AbortOnDropHandle::new(tokio::spawn(sweeping));
        let dead_after = self.options.dead_after;
        let beating = takeover::beat(Arc::clone(&self.core), self.name.clone(), dead_after);
        let _heart = AbortOnDropHandle::new(tokio::spawn(beating));
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
        self.core.pairing.check()?;
        self.work_on_closed();
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
        let uncounted: HashSet<String> = self
            .core
            .ledger
            .items_uncounted()
            .await?
            .into_iter()
            .collect();
        for item in &on_sale {
            let counts = uncounted.contains(&item.name);
            // Boxed, as below: a future of its own is large.
            let keeping = care::Keeping {
                core: Arc::clone(&self.core),
                item: item.clone(),
                counts,
                name: self.name.clone(),
                options: self.options.clone(),
                stop: self.stop.clone(),
            };
            let keeping = Box::pin(care::keep(keeping));
            self.care_for(&item.name, keeping).await;
        }
        if with_closed {
            self.look_at_closed(on_sale, &uncounted).await?;
        }
        Ok(())
    }

    async fn look_at_closed(
        &mut self,
        on_sale: Vec<Item>,
        uncounted: &HashSet<String>,
    ) -> Result<()> {
        let closed = self.core.ledger.items(&[ItemState::Closed]).await?;
        for item in &closed {
            let (core, not_empty) = (Arc::clone(&self.core), self.not_empty.0.clone());
            let counts = uncounted.contains(&item.name);
            let keeping = care::keep_closed(core, item.clone(), counts, not_empty);
            let keeping = Box::pin(keeping);
            self.care_for(&item.name, keeping).await;
        }
        self.stop_others(&on_sale);
        if Instant::now() >= self.forgets_at {
            self.forgets_at = Instant::now() + FORGET_EVERY;
            let items = on_sale.into_iter().chain(closed).collect();
            let forgetting = care::forget(Arc::clone(&self.core), self.options.clone(), items);
            self.forgetting = Some(AbortOnDropHandle::new(tokio::spawn(forgetting)));
        }
        Ok(())
    }

    async fn care_for(
        &mut self,
        item: &str,
        caring: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        self.care.begin(&self.core, item, &self.stop, caring).await;
    }

    /// Closed items whose queue was found not to be empty.
    fn work_on_closed(&mut self) {
        while let Ok(item) = self.not_empty.1.try_recv() {
            self.work_on(&item);
            self.closed_with_entries.insert(item.name, self.looks);
        }
    }

    /// Stops the workers of items that are neither on sale nor have had entries lately.
    fn stop_others(&mut self, on_sale: &[Item]) {
        let looks = self.looks;
        self.closed_with_entries
            .retain(|_, seen| looks <= *seen + 2 * CLOSED_EVERY);
        let needed: HashSet<&str> = on_sale.iter().map(|item| item.name.as_str()).collect();
        for ((item, _), working) in &self.workers {
            if !needed.contains(item.as_str()) && !self.closed_with_entries.contains_key(item) {
                working.stop.cancel();
            }
        }
        let ended =
            |working: &Working| working.stop.is_cancelled() && working.running.is_finished();
        self.workers.retain(|_, working| !ended(working));
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
}
