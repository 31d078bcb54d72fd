//! What the service knows about its sale, and publishes to watchers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use futures_util::future::join_all;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tenure_demo::broken_locks::BrokenLocks;
use tenure_sale::{Item, Sale};
use tenure_view::time::moment;
use tokio::sync::Notify;

use super::item_snapshot::{self, Picture};
use super::live_items::LiveItems;
use super::metrics::{Counted, ITEMS_MAX};
use crate::feed::{Feed, Message, Source};

/// What the service knows about its sale.
#[derive(Debug)]
pub(crate) struct Shop {
    /// The topic `sales`.
    pub(crate) feed: Arc<Feed>,
    pub(crate) counted: Counted,
    /// The home-made locks, in demo mode.
    pub(crate) broken_locks: Option<BrokenLocks>,
    pub(super) live_items: LiveItems,
    /// The items as of the last poll.
    board: Mutex<BTreeMap<String, Seen>>,
    pub(super) request_refresh: Notify,
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

impl Shop {
    pub(crate) fn new(
        registry: &mut Registry,
        sale: Option<&Sale>,
        broken_locks: Option<BrokenLocks>,
    ) -> Arc<Self> {
        Arc::new(Self {
            feed: Feed::new(),
            counted: Counted::new(registry, sale),
            broken_locks,
            live_items: LiveItems::default(),
            board: Mutex::default(),
            request_refresh: Notify::new(),
        })
    }

    /// Something changed here: updates watchers before the next poll.
    pub(crate) fn request_refresh(&self) {
        self.request_refresh.notify_one();
    }

    /// The topic `sales`: `sale.snapshot` with all items, then `sale.item` for each that changes.
    pub(crate) fn source(self: &Arc<Self>) -> Source {
        self.request_refresh();
        let shop = Arc::clone(self);
        Source {
            snapshot: Box::new(move || Some(shop.feed.snapshot(&shop.snapshot()))),
            wanted: Box::new(|_| true),
            feed: Arc::clone(&self.feed),
        }
    }

    /// When the sale of an item starts, as of the last poll.
    pub(crate) fn starts_at(&self, item: &str) -> Option<SystemTime> {
        self.board().get(item)?.item.terms.starts_at
    }

    /// Polls all items, for the topic and for the metrics.
    pub(super) async fn look(&self, sale: &Sale) {
        // While the ledger is unavailable, the last known items are kept.
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
        // Seen twice in the same state: nothing is in transit.
        let drift = picture.drift().filter(|_| !is_new);
        self.counted.seen(&picture, drift);
        if is_new {
            self.feed
                .publish("sale.item", &picture.item, &picture.timed());
        }
    }

    fn snapshot(&self) -> Message {
        let board = self.board();
        let items = board.values().map(|seen| seen.picture.clone()).collect();
        let at = moment(SystemTime::now());
        let snapshot = Snapshot { at, items };
        Message::now("sale.snapshot", "", &snapshot)
    }

    fn board(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
