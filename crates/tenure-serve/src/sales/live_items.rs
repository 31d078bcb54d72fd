//! The items that are watched, each with a feed that all its watchers share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::item_snapshot::Picture;
use crate::feed::{Feed, Message, Source};

/// The items that are watched.
#[derive(Debug, Default)]
pub(crate) struct LiveItems {
    // A std mutex, not an async one: no await while it is held.
    watched: Mutex<HashMap<String, Arc<LiveItem>>>,
}

/// A watched item: its feed, and its last known state.
#[derive(Debug)]
pub(crate) struct LiveItem {
    feed: Arc<Feed>,
    last: Mutex<Picture>,
}

impl LiveItems {
    /// Items by name. While the map is locked, no item is removed.
    pub(crate) fn watched(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveItem>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an item has no watchers; it is removed then.
    pub(crate) fn ends(&self, name: &str, live: &LiveItem) -> bool {
        let mut watched = self.watched();
        let is_over = live.feed.readers() == 0;
        if is_over {
            watched.remove(name);
        }
        is_over
    }

    /// Ends the streams of all watchers of an item that is no longer polled.
    pub(crate) fn end(&self, name: &str, live: &Arc<LiveItem>) {
        let mut watched = self.watched();
        let known = watched.get(name);
        if known.is_some_and(|known| Arc::ptr_eq(known, live)) {
            watched.remove(name);
        }
        drop(watched);
        live.feed.end();
    }
}

impl LiveItem {
    pub(crate) fn new(picture: Picture) -> Arc<Self> {
        Arc::new(Self {
            feed: Feed::new(),
            last: Mutex::new(picture),
        })
    }

    /// An event `item` at once and on every change.
    pub(crate) fn source(self: &Arc<Self>) -> Source {
        let live = Arc::clone(self);
        Source {
            snapshot: Box::new(move || {
                let picture = live.last();
                let message = Message::now("item", &picture.item, &picture.timed());
                Some(live.feed.snapshot(&message))
            }),
            wanted: Box::new(|_| true),
            feed: Arc::clone(&self.feed),
        }
    }

    /// Sends it to all watchers, unless nothing changed.
    pub(crate) fn publish(&self, picture: Picture) {
        let mut last = self.last();
        if *last != picture {
            self.feed.publish("item", &picture.item, &picture.timed());
            *last = picture;
        }
    }

    fn last(&self) -> MutexGuard<'_, Picture> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
