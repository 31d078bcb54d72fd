//! The classic load-test endpoint: orders one unit, and names the instance that sold it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tenure_demo::item::{ITEM, UNITS};
use tenure_sale::{Answer, OrderState, Outcome, Request, Sale};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Key, Selling};
use super::refusal;
use super::submit::{asked, chosen_id, state};
use crate::extract::{Body, Query};
use crate::problem::Problem;
use crate::responses;
use crate::state::AppState;

/// What to order. All fields are optional.
#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wish {
    /// Default: `1001`.
    item: Option<String>,
    /// Default: a new buyer for each request id.
    buyer: Option<String>,
    /// Idempotency key, also as the header `Idempotency-Key`; default: random.
    request: Option<String>,
    /// Default: 1.
    units: Option<u64>,
}

/// The sale, and the instance that served it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sold {
    #[schema(example = "sold one, 4999 left, served by port 8081")]
    message: String,
    /// Units left; null if unlimited.
    left: Option<u64>,
    /// Port of the instance.
    #[schema(example = 8081)]
    port: u16,
    order_id: String,
}

/// Orders one unit of item 1001, or as given.
#[utoipa::path(get, path = "/order/v1/submitOrder", tag = "load tests", params(Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 202, description = "Sold; queued for the ledger", body = Sold),
        (status = 403, description = "The service is read-only", body = Problem),
        (status = 410, description = "The sale has ended", body = Problem),
        (status = 425, description = "The sale has not started", body = Problem),
        (status = 503, description = "The gate is unavailable", body = Problem),
        responses::NoItem, responses::SoldOut, responses::Invalid, responses::NoLedger))]
pub(crate) async fn get(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Key(key): Key,
    Query(wish): Query<Wish>,
) -> Result<Response, Problem> {
    order(&app, &sale, key, wish).await
}

/// The same, with the order in the body or in the query.
#[utoipa::path(post, path = "/order/v1/submitOrder", tag = "load tests", params(Wish), request_body = Wish,
    responses((status = 200, description = "Sold", body = Sold),
        (status = 202, description = "Sold; queued for the ledger", body = Sold),
        (status = 410, description = "The sale has ended", body = Problem),
        (status = 425, description = "The sale has not started", body = Problem),
        (status = 503, description = "The gate is unavailable", body = Problem),
        responses::NoItem, responses::SoldOut, responses::Invalid, responses::NoLedger))]
pub(crate) async fn post(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Key(key): Key,
    Query(asked): Query<Wish>,
    Body(body): Body<Wish>,
) -> Result<Response, Problem> {
    let wish = Wish {
        item: body.item.or(asked.item),
        buyer: body.buyer.or(asked.buyer),
        request: body.request.or(asked.request),
        units: body.units.or(asked.units),
    };
    order(&app, &sale, key, wish).await
}

async fn order(
    app: &AppState,
    sale: &Sale,
    key: Option<String>,
    wish: Wish,
) -> Result<Response, Problem> {
    let port = app.settings.address.port();
    let with_port = |problem: Problem| problem.with("port", port);
    let request = wish.request(key).map_err(with_port)?;
    let answer = asked(app, sale, &request).await.map_err(with_port)?;
    if let Some(problem) = refused(app, sale, &request, &answer) {
        return Err(with_port(problem));
    }
    let is_queued = state(sale, &answer.outcome) == Some(OrderState::Queued);
    let status = if is_queued {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let order_id = answer.outcome.order().map(ToString::to_string);
    let sold = Sold {
        message: sold_message(request.wanted(), answer.left, port),
        left: answer.left,
        port,
        order_id: order_id.unwrap_or_default(),
    };
    Ok((status, Json(sold)).into_response())
}

impl Wish {
    fn request(self, key: Option<String>) -> Result<Request, Problem> {
        let id = chosen_id("request", key, self.request)?;
        let item = self.item.as_deref().unwrap_or(ITEM);
        // A retry with the same id has the same buyer, so that it is the same order.
        let buyer = self.buyer.unwrap_or_else(|| id.clone());
        Ok(Request::new(item, buyer, id)?.units(self.units.unwrap_or(1))?)
    }
}

fn refused(app: &AppState, sale: &Sale, request: &Request, answer: &Answer) -> Option<Problem> {
    let port = app.settings.address.port();
    let problem = refusal::of(&app.shop, answer, request)?;
    Some(match answer.outcome {
        Outcome::NoItem if request.item() == ITEM => {
            Problem::new(refusal::NO_ITEM, how_to_stock(sale))
        }
        Outcome::SoldOut => problem.with("message", format!("sold out, served by port {port}")),
        _ => problem,
    })
}

fn how_to_stock(sale: &Sale) -> String {
    let how = if sale.gate().is_memory() {
        format!(
            "start `tenure serve` with --allow-admin and POST {{\"item\": \"{ITEM}\", \"units\": \
             {UNITS}, \"open\": true}} to /api/v1/items"
        )
    } else {
        format!("run `tenure sale item create {ITEM} --stock {UNITS} --open`")
    };
    format!("item `{ITEM}` is not on sale: {how}, or start `tenure serve` with --demo")
}

/// The message of the response.
pub(crate) fn sold_message(units: u64, left: Option<u64>, port: u16) -> String {
    let sold = match units {
        1 => "one".to_owned(),
        units => units.to_string(),
    };
    match left {
        Some(left) => format!("sold {sold}, {left} left, served by port {port}"),
        None => format!("sold {sold}, served by port {port}"),
    }
}
