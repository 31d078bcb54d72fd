//! The live state of one item: all watchers share one poll.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::FutureExt as _;
use tenure_sale::{Events, Item, Sale};
use tokio::time::{Instant, sleep, sleep_until};

use super::extract::{Selling, ask, known};
use super::item_snapshot::{self, Picture};
use super::live_items::LiveItem;
use crate::event_stream::respond;
use crate::extract::Path;
use crate::problem::Problem;
use crate::responses;
use crate::state::AppState;

/// At most ten messages a second.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// Poll at least this often, and check for watchers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Streams the state of an item: an event `item` at once and on every change, at most ten per
/// second.
#[utoipa::path(get, path = "/api/v1/items/{item}/live", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
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
    let mut watched = app.shop.live_items.watched();
    let (live, is_new) = match watched.entry(name) {
        Entry::Occupied(watched) => (Arc::clone(watched.get()), false),
        Entry::Vacant(free) => (Arc::clone(free.insert(LiveItem::new(picture))), true),
    };
    // While the map is locked, so that the item is not removed before this reader counts.
    let response = respond(&app, live.source());
    drop(watched);
    if is_new {
        let name = item.name.clone();
        let following = Following { app, name, live };
        tokio::spawn(follow(following, sale, item, events));
    }
    response
}

/// An item that is being polled. However that ends, its watchers do not go on with an old state.
struct Following {
    app: AppState,
    name: String,
    live: Arc<LiveItem>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.app.shop.live_items.end(&self.name, &self.live);
    }
}

/// Polls an item while it has watchers.
async fn follow(following: Following, sale: Sale, mut item: Item, mut events: Events) {
    let Following { app, live, .. } = &following;
    loop {
        tokio::select! {
            _ = events.next() => {}
            () = sleep(LOOK_EVERY) => {}
            () = app.stop.cancelled() => return,
        }
        if app.shop.live_items.ends(&item.name, live) {
            return;
        }
        let next_at = Instant::now() + PUBLISH_EVERY;
        // One poll covers all changes so far.
        while events.next().now_or_never().is_some() {}
        if let Some(known) = item_snapshot::item(&sale, &item.name).await {
            item = known;
        }
        live.publish(Picture::take(&sale, &item).await);
        sleep_until(next_at).await;
    }
}
