//! What the service knows of its sale, and what it does for it beside answering.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tenure_demo::broken_locks::BrokenLocks;
use tenure_sale::{ConsumerOptions, Item, Sale};
use tenure_view::sale::at;
use tokio::sync::Notify;

use super::item_events::Lives;
use super::item_snapshot::{self, Picture};
use super::metrics::{Counted, ITEMS_MAX};
use crate::app::AppState;
use crate::event_stream::{Feed, Message, Source};

/// Between two looks at all items, while somebody watches them and otherwise.
const LOOK_OFTEN: Duration = Duration::from_millis(250);
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How long the consumer may take to bring in what it has once the service stops.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// What the service knows of its sale.
#[derive(Debug)]
pub(crate) struct Shop {
    /// The topic `sales`.
    pub(crate) feed: Arc<Feed>,
    pub(crate) counted: Counted,
    /// The home-made locks, where they are to be tried.
    pub(crate) broken_locks: Option<BrokenLocks>,
    pub(super) lives: Lives,
    /// How items stood when they were looked at last.
    board: Mutex<BTreeMap<String, Seen>>,
    look_soon: Notify,
}

#[derive(Clone, Debug)]
struct Seen {
    item: Item,
    picture: Picture,
}

#[derive(Serialize)]
struct Snapshot {
    at: String,
    items: Vec<Picture>,
}

#[derive(Serialize)]
struct Told<'a> {
    at: String,
    #[serde(flatten)]
    picture: &'a Picture,
}

impl Shop {
    pub(crate) fn new(
        registry: &mut Registry,
        sale: Option<&Sale>,
        broken_locks: Option<BrokenLocks>,
    ) -> Self {
        Self {
            feed: Feed::new(),
            counted: Counted::new(registry, sale),
            broken_locks,
            lives: Lives::default(),
            board: Mutex::default(),
            look_soon: Notify::new(),
        }
    }

    /// Something was changed here: whoever watches need not wait for the next look.
    pub(crate) fn look_soon(&self) {
        self.look_soon.notify_one();
    }

    /// When the sale of an item begins, as far as that was seen: nobody is asked.
    pub(crate) fn starts_at(&self, item: &str) -> Option<SystemTime> {
        self.board().get(item)?.item.terms.starts_at
    }

    async fn look(&self, sale: &Sale) {
        // While the ledger is away, the items are those that it had.
        let items = match item_snapshot::items(sale).await {
            Some(items) => items,
            None => self
                .board()
                .values()
                .map(|seen| seen.item.clone())
                .collect(),
        };
        let items = items.into_iter().take(ITEMS_MAX);
        let looking = items.map(|item| async {
            let picture = Picture::take(sale, &item).await;
            Seen { item, picture }
        });
        for seen in join_all(looking).await {
            self.note(seen);
        }
    }

    fn note(&self, seen: Seen) {
        let name = seen.item.name.clone();
        let picture = seen.picture.clone();
        let before = self.board().insert(name, seen);
        let is_new = before.is_none_or(|before| before.picture != picture);
        // Twice the same: nothing moves.
        let drift = picture.drift().filter(|_| !is_new);
        self.counted.seen(&picture, drift);
        if is_new {
            self.feed.tell("sale.item", &picture.item, &told(&picture));
        }
    }

    fn snapshot(&self) -> Message {
        let board = self.board();
        let items = board.values().map(|seen| seen.picture.clone()).collect();
        let at = at(SystemTime::now());
        let snapshot = Snapshot { at, items };
        Message::now("sale.snapshot", "", &snapshot)
    }

    fn board(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A picture with its time, as watchers get it.
pub(crate) fn told(picture: &Picture) -> impl Serialize {
    Told {
        at: at(SystemTime::now()),
        picture,
    }
}

/// The topic `sales`: `sale.snapshot` with all items, then `sale.item` for each that changes.
pub(crate) fn source(app: &AppState) -> Source {
    let looked_at = app.clone();
    app.shop.look_soon();
    Source {
        snapshot: Box::new(move || vec![looked_at.shop.snapshot()]),
        wanted: Box::new(|_| true),
        feed: Arc::clone(&app.shop.feed),
    }
}

/// Begins what is done beside the requests. What is returned ends soon after the service was told to
/// stop.
pub(crate) fn start(app: &AppState) -> impl Future<Output = ()> + use<> {
    let sale = app.sale.clone();
    let consuming = sale.map(|sale| {
        tokio::spawn(watch(app.clone(), sale.clone()));
        tokio::spawn(consume(app.clone(), sale))
    });
    async move {
        if let Some(consuming) = consuming {
            // If it panicked, there is nothing left to stop.
            let _ = consuming.await;
        }
    }
}

/// Looks at all items again and again: for the topic, and for the metrics.
async fn watch(app: AppState, sale: Sale) {
    loop {
        app.shop.look(&sale).await;
        let is_watched = app.shop.feed.readers() > 0;
        let pause = if is_watched { LOOK_OFTEN } else { LOOK_SELDOM };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.shop.look_soon.notified() => {}
            () = app.stop.cancelled() => return,
        }
    }
}

/// Brings orders from the queues into the ledger. A gate in memory does that itself.
async fn consume(app: AppState, sale: Sale) {
    if !app.settings.consumer || sale.gate().is_memory() {
        return;
    }
    let options = ConsumerOptions::default().stop_within(STOP_WITHIN);
    match sale.consume(options) {
        Ok(consumer) => {
            app.stop.cancelled().await;
            consumer.stop().await;
        }
        Err(error) => {
            let line = format_args!("tenure: cannot consume orders: {error}");
            app.settings.log.line(line);
        }
    }
}
