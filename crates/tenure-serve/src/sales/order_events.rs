//! The state of one order, live.

use axum::extract::State;
use axum::response::Response;
use futures_util::stream::{self, Stream};
use tenure_sale::{Event, Events, Order, OrderId, OrderState, Sale};
use tenure_view::sale::ShownOrder;

use super::extract::{Selling, ask, order_id};
use crate::event_stream::respond_with;
use crate::extract::Path;
use crate::feed::Message;
use crate::feed::outgoing::Outgoing;
use crate::problem::Problem;
use crate::responses;
use crate::state::AppState;

/// A watched order.
struct Watching {
    sale: Sale,
    events: Events,
    id: OrderId,
    /// Not yet sent.
    news: Option<Order>,
    sent: Option<OrderState>,
}

/// Streams the state of an order: an event `order` at once and on every change, until it is paid,
/// cancelled, expired, rejected or lost.
#[utoipa::path(get, path = "/api/v1/orders/{order_id}/events", tag = "sales",
    params(("order_id" = String, Path, description = "Id of the order")),
    responses((status = 200, description = "Events named `order`", body = ShownOrder,
            content_type = "text/event-stream"),
        responses::NotFound, responses::TooManyStreams, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn watch(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = order_id(&id)?;
    // Subscribe before reading, so that no change is missed in between.
    let events = ask(sale.events(id.item(), None)).await?;
    let watching = Watching {
        news: Some(ask(sale.order(&id)).await?),
        sale,
        events,
        id,
        sent: None,
    };
    respond_with(&app, states(watching))
}

fn states(watching: Watching) -> impl Stream<Item = Outgoing> + Send {
    stream::unfold(watching, |mut watching| async move {
        let order = watching.next().await?;
        watching.sent = Some(order.state);
        let (state, shown) = (order.state.word(), ShownOrder::of(&order));
        let message = Message::written("order", Some(state), "", &shown);
        Some((Outgoing::own(message.frame()), watching))
    })
}

impl Watching {
    /// The order in its next state; `None` if the state that was sent last is final.
    async fn next(&mut self) -> Option<Order> {
        if self.sent.is_some_and(is_final) {
            return None;
        }
        loop {
            if let Some(order) = self.news.take()
                && self.sent != Some(order.state)
            {
                return Some(order);
            }
            let is_about_it = match self.events.next().await {
                Event::Orders { orders, .. } => orders.contains(&self.id),
                Event::Missed { .. } => true,
                _ => false,
            };
            if is_about_it {
                // While the ledger is unavailable there is no news; its next event asks again.
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
