//! Submitting orders: the hot path.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tenure_sale::{Answer, OrderState, Outcome, Request, Sale};
use utoipa::ToSchema;

use super::extract::{Key, Selling, changing};
use super::refusal;
use crate::extract::Body;
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// When to look up a queued order.
const POLL_AFTER_MS: u64 = 100;

/// An order request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderBody {
    #[schema(example = "sku-7")]
    item: String,
    #[schema(example = "anna")]
    buyer: String,
    /// Number of units.
    #[serde(default = "one")]
    units: u64,
    /// Idempotency key: a retry is the same order. Also as the header `Idempotency-Key`; default:
    /// random.
    #[schema(example = "click-1")]
    request: Option<String>,
}

/// An accepted order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Submitted<'a> {
    #[schema(example = "sku-7.1.42")]
    order_id: String,
    /// `queued`: in the queue, units reserved. `reserved`: in the ledger. Left out if the request
    /// is a retry: look up the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// Whether the request is a retry.
    replayed: bool,
    item: &'a str,
    buyer: &'a str,
    request: &'a str,
    units: u64,
    /// Units left at that moment; null if unlimited.
    left: Option<u64>,
    /// When to look up the order.
    poll_after_ms: u64,
}

/// Submits an order. A retry with the same request id returns the same order.
#[utoipa::path(post, path = "/api/v1/orders", tag = "sales", request_body = OrderBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key of the \
             request")),
    responses((status = 202, description = "Accepted, or accepted before with the same request \
                                            id", body = Submitted,
            headers(("Location" = String, description = "Path of the order"))),
        (status = 404, description = "`no_item`", body = Problem),
        (status = 409, description = "`sold_out`, `limit` or `paused`", body = Problem),
        (status = 410, description = "`ended`", body = Problem),
        (status = 422, description = "Invalid value, or `request_reused`", body = Problem),
        (status = 425, description = "`not_started`, with `starts_at`", body = Problem),
        (status = 429, description = "Too many requests from one address", body = Problem),
        (status = 503, description = "`backlog`, `rebuilding`, or the gate is unavailable: retry \
                                      with the same request id", body = Problem),
        responses::NoLedger))]
pub(crate) async fn submit(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Key(key): Key,
    Body(body): Body<OrderBody>,
) -> Result<Response, Problem> {
    let id = chosen_id("request", key, body.request)?;
    let request = Request::new(&body.item, &body.buyer, id)?.units(body.units)?;
    let answer = asked(&app, &sale, &request).await?;
    if let Some(problem) = refusal::of(&app.shop, &answer, &request) {
        return Err(problem.with("request", request.id()));
    }
    Ok(taken(&app, &sale, &request, &answer))
}

/// Submits the order at the gate, and counts the outcome.
pub(crate) async fn asked(
    app: &AppState,
    sale: &Sale,
    request: &Request,
) -> Result<Answer, Problem> {
    let begun = Instant::now();
    let answer = changing(sale.submit(request)).await;
    let outcome = answer.as_ref().ok().map(|answer| &answer.outcome);
    let counted = &app.shop.counted;
    counted.submitted(request.item(), outcome, begun.elapsed());
    // It is unknown whether the order was accepted: the client must retry with the same id, so the
    // response has it.
    answer.map_err(|problem| problem.with("request", request.id()))
}

fn taken(app: &AppState, sale: &Sale, request: &Request, answer: &Answer) -> Response {
    let order_id = answer.outcome.order().map(ToString::to_string);
    let order_id = order_id.unwrap_or_default();
    let base = &app.settings.base_path;
    let place = format!("{base}/api/v1/orders/{}", path_segment(&order_id));
    let state = state(sale, &answer.outcome);
    let submitted = Submitted {
        order_id,
        state: state.map(OrderState::word),
        replayed: matches!(answer.outcome, Outcome::Replayed(_)),
        item: request.item(),
        buyer: request.buyer(),
        request: request.id(),
        units: request.wanted(),
        left: answer.left,
        poll_after_ms: match state {
            Some(OrderState::Queued) => POLL_AFTER_MS,
            _ => 0,
        },
    };
    let place = [(header::LOCATION, place)];
    (StatusCode::ACCEPTED, place, Json(submitted)).into_response()
}

/// The state of an order that was just accepted; `None` if it is not known.
pub(crate) fn state(sale: &Sale, outcome: &Outcome) -> Option<OrderState> {
    match outcome {
        Outcome::Accepted(_) if sale.gate().is_memory() => Some(OrderState::Reserved),
        Outcome::Accepted(_) => Some(OrderState::Queued),
        _ => None,
    }
}

/// The id from the header or the body, or a new one.
pub(crate) fn chosen_id(
    field: &str,
    key: Option<String>,
    given: Option<String>,
) -> Result<String, Problem> {
    match (key, given) {
        (Some(key), Some(given)) if key != given => {
            let detail =
                format!("the header `Idempotency-Key` and `{field}` differ: give only one of them");
            Err(Problem::new(Kind::INVALID, detail))
        }
        (Some(id), _) | (None, Some(id)) => Ok(id),
        (None, None) => Ok(new_id()),
    }
}

/// A unique id.
fn new_id() -> String {
    format!("http-{:032x}", rand::random::<u128>())
}

/// A name as a part of a path.
pub(crate) fn path_segment(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut encoded = String::with_capacity(name.len() * 3);
    for byte in name.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    Cow::Owned(encoded)
}

fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(path_segment("sku-7.1.42"), "sku-7.1.42");
        assert_eq!(path_segment("a/b ü?"), "a%2Fb%20%C3%BC%3F");
    }

    #[test]
    fn header_and_body_say_the_same_or_one_of_them_says_it() {
        let id = |key: Option<&str>, given: Option<&str>| {
            let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
            chosen_id("request", owned(key), owned(given)).ok()
        };
        assert_eq!(id(Some("a"), None).as_deref(), Some("a"));
        assert_eq!(id(None, Some("b")).as_deref(), Some("b"));
        assert_eq!(id(Some("c"), Some("c")).as_deref(), Some("c"));
        assert_eq!(id(Some("a"), Some("b")), None);
        assert_ne!(id(None, None), id(None, None));
    }
}
