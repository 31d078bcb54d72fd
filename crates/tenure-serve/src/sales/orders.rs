//! The state of orders.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_sale::{Order, OrderState};
use tenure_view::sale::ShownOrder;
use utoipa::{IntoParams, ToSchema};

use super::extract::{
    ANSWER_WITHIN, Selling, ask, ask_within, changing, check_buyer, check_item, check_reference,
    known, order_id,
};
use super::paging::Listing;
use crate::extract::{Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// The longest time that one request waits for an order.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How long to wait for an order.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Waiting {
    /// Wait at most this long while it is queued; maximum 30 s.
    #[serde(default)]
    wait_ms: u64,
}

/// Which orders to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Choice {
    /// Only orders in this state.
    state: Option<String>,
}

/// Orders, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Orders {
    orders: Vec<ShownOrder>,
}

/// Shows an order, in the queue or in the ledger.
#[utoipa::path(get, path = "/api/v1/orders/{order_id}", tag = "sales",
    params(("order_id" = String, Path, description = "Id of the order"), Waiting),
    responses((status = 200, description = "The order", body = ShownOrder),
        (status = 429, description = "Too many waiting requests", body = Problem),
        responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn show(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(id): Path<String>,
    Query(waiting): Query<Waiting>,
) -> Result<Json<ShownOrder>, Problem> {
    let id = order_id(&id)?;
    let limit = Duration::from_millis(waiting.wait_ms).min(WAIT_MAX);
    if limit.is_zero() {
        return Ok(shown(&ask(sale.order(&id)).await?));
    }
    let _counted = app.limits.wait()?;
    tokio::select! {
        order = ask_within(limit + ANSWER_WITHIN, sale.wait(&id, limit)) => Ok(shown(&order?)),
        () = app.stop.cancelled() => Err(Problem::new(Kind::STOPPING, "the service is shutting down")),
    }
}

/// Cancels an unpaid order and returns its units, once. A queued order is cancelled when it reaches
/// the ledger.
#[utoipa::path(post, path = "/api/v1/orders/{order_id}/cancel", tag = "sales",
    params(("order_id" = String, Path, description = "Id of the order")),
    responses((status = 200, description = "The new state", body = ShownOrder),
        (status = 409, description = "The order is paid or closed", body = Problem),
        responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn cancel(
    Selling(sale): Selling,
    Path(id): Path<String>,
) -> Result<Json<ShownOrder>, Problem> {
    let id = order_id(&id)?;
    Ok(shown(&changing(sale.cancel(&id)).await?))
}

/// Marks an order as paid; may be retried. A payment after the order expired reserves the units
/// again if some are left; otherwise the order becomes `paid-unfulfilled`: refund it.
#[utoipa::path(post, path = "/api/v1/orders/{order_id}/pay", tag = "sales",
    params(("order_id" = String, Path, description = "Id of the order")),
    responses((status = 200, description = "The new state", body = ShownOrder),
        (status = 409, description = "The order cannot be paid in its state", body = Problem),
        (status = 503, description = "Gate or ledger is unavailable: retry", body = Problem),
        responses::NotFound, responses::NoLedger))]
pub(crate) async fn pay(
    Selling(sale): Selling,
    Path(id): Path<String>,
) -> Result<Json<ShownOrder>, Problem> {
    let id = order_id(&id)?;
    Ok(shown(&changing(sale.pay(&id)).await?))
}

/// Lists a buyer's orders in the ledger, newest first.
#[utoipa::path(get, path = "/api/v1/buyers/{buyer}/orders", tag = "sales",
    params(("buyer" = String, Path, description = "Name of the buyer"), Listing),
    responses((status = 200, description = "The orders", body = Orders),
        (status = 422, description = "Invalid buyer name", body = Problem),
        responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn of_buyer(
    Selling(sale): Selling,
    Path(buyer): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<Json<Orders>, Problem> {
    check_buyer(&buyer)?;
    let orders = ask(sale.orders_of(&buyer, listing.count())).await?;
    Ok(listed(&orders))
}

/// Alias of `/buyers/{buyer}/orders`.
#[utoipa::path(get, path = "/api/v1/users/{buyer}/orders", tag = "sales",
    params(("buyer" = String, Path, description = "Name of the buyer"), Listing),
    responses((status = 200, description = "The orders", body = Orders),
        (status = 422, description = "Invalid buyer name", body = Problem),
        responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn of_user(
    selling: Selling,
    buyer: Path<String>,
    listing: Query<Listing>,
) -> Result<Json<Orders>, Problem> {
    of_buyer(selling, buyer, listing).await
}

/// Lists the orders of an item in the ledger, newest first.
#[utoipa::path(get, path = "/api/v1/items/{item}/orders", tag = "sales",
    params(("item" = String, Path, description = "Name of the item"), Choice, Listing),
    responses((status = 200, description = "The orders", body = Orders),
        (status = 422, description = "Unknown state", body = Problem),
        responses::NoItem, responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn of_item(
    Selling(sale): Selling,
    Path(item): Path<String>,
    Query(choice): Query<Choice>,
    Query(listing): Query<Listing>,
) -> Result<Json<Orders>, Problem> {
    let state = choice.state()?;
    known(&sale, &item).await?;
    let ledger = sale.ledger();
    let orders = ask(ledger.orders_for(&item, state, listing.count())).await?;
    Ok(listed(&orders))
}

/// Finds the order of a request in the ledger.
#[utoipa::path(get, path = "/api/v1/items/{item}/orders/{buyer}/{request}", tag = "sales",
    params(("item" = String, Path, description = "Name of the item"),
        ("buyer" = String, Path, description = "Name of the buyer"),
        ("request" = String, Path, description = "Idempotency key of the request")),
    responses((status = 200, description = "The order", body = ShownOrder),
        (status = 422, description = "Invalid name", body = Problem),
        responses::NotFound, responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn of_request(
    Selling(sale): Selling,
    Path((item, buyer, request)): Path<(String, String, String)>,
) -> Result<Json<ShownOrder>, Problem> {
    check_item(&item)?;
    check_buyer(&buyer)?;
    check_reference(&request)?;
    let found = ask(sale.order_of(&item, &buyer, &request)).await?;
    let order = found.ok_or_else(|| {
        let detail =
            format!("order not found in the ledger: request `{request}` of buyer `{buyer}`");
        Problem::new(Kind::NOT_FOUND, detail)
    })?;
    Ok(shown(&order))
}

impl Choice {
    fn state(&self) -> Result<Option<OrderState>, Problem> {
        let Some(word) = self.state.as_deref() else {
            return Ok(None);
        };
        let mut states = OrderState::ALL.into_iter();
        let found = states.find(|state| state.word() == word);
        found.map(Some).ok_or_else(|| {
            let words = OrderState::ALL.map(OrderState::word).join("`, `");
            let detail = format!("unknown order state: expected one of `{words}`");
            Problem::new(Kind::INVALID, detail)
        })
    }
}

fn shown(order: &Order) -> Json<ShownOrder> {
    Json(ShownOrder::of(order))
}

fn listed(orders: &[Order]) -> Json<Orders> {
    let orders = orders.iter().map(ShownOrder::of).collect();
    Json(Orders { orders })
}
