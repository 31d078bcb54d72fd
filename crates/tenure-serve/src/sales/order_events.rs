//! What becomes of one order, live.

use axum::extract::State;
use axum::response::Response;
use futures_util::stream::{self, Stream};
use tenure_sale::{Event, Events, Order, OrderId, OrderState, Sale};
use tenure_view::sale::ShownOrder;

use super::extract::{Selling, ask, order_id};
use crate::app::AppState;
use crate::event_stream::{Message, respond_with};
use crate::extract::Path;
use crate::problem::Problem;
use crate::responses;

/// What is known of an order that is watched.
struct Watching {
    sale: Sale,
    events: Events,
    id: OrderId,
    /// To be told.
    news: Option<Order>,
    told: Option<OrderState>,
}

/// What becomes of an order, as events: `order` at once and whenever its state changes; the stream
/// ends when it is paid for, cancelled, expired, rejected or lost.
#[utoipa::path(get, path = "/orders/{order_id}/events", tag = "sales",
    params(("order_id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Events named `order`", body = ShownOrder,
            content_type = "text/event-stream"),
        responses::NotFound, responses::TooManyStreams, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn watch(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = order_id(&id)?;
    // Before looking, so that nothing is missed between.
    let events = ask(sale.events(id.item(), None)).await?;
    let watching = Watching {
        news: Some(ask(sale.order(&id)).await?),
        sale,
        events,
        id,
        told: None,
    };
    respond_with(&app, states(watching))
}

fn states(watching: Watching) -> impl Stream<Item = Message> + Send {
    stream::unfold(watching, |mut watching| async move {
        let order = watching.next().await?;
        watching.told = Some(order.state);
        let (state, shown) = (order.state.word(), ShownOrder::of(&order));
        Some((Message::written("order", Some(state), "", &shown), watching))
    })
}

impl Watching {
    /// The order in its next state; `None` if there is none after what was told.
    async fn next(&mut self) -> Option<Order> {
        if self.told.is_some_and(is_final) {
            return None;
        }
        loop {
            if let Some(order) = self.news.take()
                && self.told != Some(order.state)
            {
                return Some(order);
            }
            let is_about_it = match self.events.next().await {
                Event::Orders { orders, .. } => orders.contains(&self.id),
                Event::Missed { .. } => true,
                _ => false,
            };
            if is_about_it {
                // While the ledger is away there is no news; its next event asks again.
                self.news = ask(self.sale.order(&self.id)).await.ok();
            }
        }
    }
}

fn is_final(state: OrderState) -> bool {
    match state {
        OrderState::Queued | OrderState::Reserved | OrderState::Dead => false,
        OrderState::Paid
        | OrderState::Cancelled
        | OrderState::Expired
        | OrderState::Rejected
        | OrderState::Lost
        | OrderState::PaidUnfulfilled => true,
    }
}
