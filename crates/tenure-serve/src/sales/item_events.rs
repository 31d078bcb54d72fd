//! How one item stands, live: all who watch it share one look.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::FutureExt as _;
use tenure_sale::{Events, Item, Sale};
use tokio::time::{Instant, sleep, sleep_until};

use super::extract::{Selling, ask, known};
use super::item_snapshot::{self, Picture};
use super::shop::told;
use crate::app::AppState;
use crate::event_stream::{Feed, Message, Source, respond};
use crate::extract::Path;
use crate::problem::Problem;
use crate::responses;

/// At most ten messages a second.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Look at least so often, and whether anybody still watches.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The items that are watched.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    // A std mutex, not an async one: nobody waits while it is held.
    watched: Mutex<HashMap<String, Arc<Live>>>,
}

#[derive(Debug)]
struct Live {
    feed: Arc<Feed>,
    last: Mutex<Picture>,
}

/// How an item stands, as events: `item` at once and whenever it changes, at most ten times a second.
#[utoipa::path(get, path = "/items/{item}/live", tag = "sales",
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "Events named `item`", body = Picture,
            content_type = "text/event-stream"),
        responses::NotFound, responses::TooManyStreams, responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn watch(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let item = known(&sale, &name).await?;
    let events = ask(sale.events(&name, None)).await?;
    let picture = Picture::take(&sale, &item).await;
    let mut watched = app.shop.lives.watched();
    let live = match watched.entry(name) {
        Entry::Occupied(watched) => Arc::clone(watched.get()),
        Entry::Vacant(free) => {
            let live = Arc::clone(free.insert(Live::new(picture)));
            tokio::spawn(follow(app.clone(), sale, item, events, Arc::clone(&live)));
            live
        }
    };
    // While the map is locked: nobody takes the item out before this reader counts.
    respond(&app, vec![live.source()])
}

impl Lives {
    fn watched(&self) -> MutexGuard<'_, HashMap<String, Arc<Live>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody watches an item any more; it is forgotten then.
    fn ends(&self, name: &str, live: &Live) -> bool {
        let mut watched = self.watched();
        let is_over = live.feed.readers() == 0;
        if is_over {
            watched.remove(name);
        }
        is_over
    }
}

impl Live {
    fn new(picture: Picture) -> Arc<Self> {
        Arc::new(Self {
            feed: Feed::new(),
            last: Mutex::new(picture),
        })
    }

    fn source(self: &Arc<Self>) -> Source {
        let live = Arc::clone(self);
        Source {
            snapshot: Box::new(move || {
                let picture = live.last();
                vec![Message::now("item", &picture.item, &told(&picture))]
            }),
            wanted: Box::new(|_| true),
            feed: Arc::clone(&self.feed),
        }
    }

    fn tell(&self, picture: Picture) {
        let mut last = self.last();
        if *last != picture {
            self.feed.tell("item", &picture.item, &told(&picture));
            *last = picture;
        }
    }

    fn last(&self) -> MutexGuard<'_, Picture> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows an item for as long as somebody watches it.
async fn follow(app: AppState, sale: Sale, mut item: Item, mut events: Events, live: Arc<Live>) {
    loop {
        tokio::select! {
            _ = events.next() => {}
            () = sleep(LOOK_EVERY) => {}
            () = app.stop.cancelled() => return,
        }
        if app.shop.lives.ends(&item.name, &live) {
            return;
        }
        let next_at = Instant::now() + TELL_EVERY;
        // What has come until now is seen by one look.
        while events.next().now_or_never().is_some() {}
        if let Some(known) = item_snapshot::item(&sale, &item.name).await {
            item = known;
        }
        live.tell(Picture::take(&sale, &item).await);
        sleep_until(next_at).await;
    }
}
