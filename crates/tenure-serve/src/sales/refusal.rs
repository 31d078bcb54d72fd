//! Refusals of the sale, as problems.

use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use tenure_sale::{Answer, Error, ErrorKind, Outcome, Request};
use tenure_view::time::moment;

use super::shop::Shop;
use crate::problem::{Kind, Problem};

/// When to retry at a gate that is busy or being rebuilt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One line for each kind.
macro_rules! kinds {
    ($($name:ident = $status:ident, $code:literal, $title:literal;)*) => {
        $(pub(crate) const $name: Kind = Kind::new(StatusCode::$status, $code, $title);)*
    };
}

kinds! {
    NO_SALES = NOT_IMPLEMENTED, "no_sales", "sales are off";
    NO_ITEM = NOT_FOUND, "no_item", "item not on sale";
    SOLD_OUT = CONFLICT, "sold_out", "not enough units left";
    LIMIT = CONFLICT, "limit", "over the limit per buyer or per order";
    PAUSED = CONFLICT, "paused", "the sale is paused";
    NOT_STARTED = TOO_EARLY, "not_started", "the sale has not started";
    ENDED = GONE, "ended", "the sale has ended";
    REQUEST_REUSED = UNPROCESSABLE_ENTITY, "request_reused", "request id reused for another order";
    BACKLOG = SERVICE_UNAVAILABLE, "backlog", "too many queued orders";
    REBUILDING = SERVICE_UNAVAILABLE, "rebuilding", "the gate is being rebuilt";
}

/// There is no ledger.
pub(crate) fn no_sales() -> Problem {
    let detail = "sales are off, because there is no ledger: start `tenure serve` with --ledger";
    Problem::new(NO_SALES, detail)
}

/// An error of the sale.
pub(crate) fn of_error(error: Error) -> Problem {
    match error.kind() {
        ErrorKind::NoItem => Problem::new(NO_ITEM, error.to_string()),
        _ => error.into(),
    }
}

/// The problem for an outcome without an order; `None` if there is an order.
pub(crate) fn of(shop: &Shop, answer: &Answer, request: &Request) -> Option<Problem> {
    let (item, units) = (request.item(), request.wanted());
    let problem = match &answer.outcome {
        Outcome::Accepted(_) | Outcome::Replayed(_) => return None,
        Outcome::Conflict(order) => {
            let detail = format!(
                "request `{}` of buyer `{}` is already order `{order}` with another number of \
                 units: use a new request id",
                request.id(),
                request.buyer()
            );
            Problem::new(REQUEST_REUSED, detail).with("order_id", order.to_string())
        }
        Outcome::NoItem => {
            let detail = format!("`{item}` is not on sale: item not found, or a draft");
            Problem::new(NO_ITEM, detail)
        }
        Outcome::NotStarted => not_started(item, shop.starts_at(item)),
        Outcome::Ended => refused(ENDED, item, "has ended"),
        Outcome::Paused => refused(PAUSED, item, "is paused: retry later"),
        Outcome::LimitReached => {
            let detail = format!(
                "buyer `{}` cannot order `{units}` of `{item}`",
                request.buyer()
            );
            Problem::new(LIMIT, detail)
        }
        Outcome::SoldOut => Problem::new(SOLD_OUT, format!("`{item}` is sold out")),
        Outcome::Busy => {
            refused(BACKLOG, item, "is busy: retry in a moment").retry_after(RETRY_AFTER)
        }
        Outcome::StaleEpoch => refused(
            REBUILDING,
            item,
            "is waiting for its gate: retry in a moment",
        )
        .retry_after(RETRY_AFTER),
    };
    Some(problem.with("left", answer.left))
}

fn not_started(item: &str, starts_at: Option<SystemTime>) -> Problem {
    let Some(starts_at) = starts_at else {
        return refused(NOT_STARTED, item, "has not started: retry later");
    };
    let (shown, left) = (
        moment(starts_at),
        starts_at.duration_since(SystemTime::now()),
    );
    refused(NOT_STARTED, item, &format!("starts at {shown}"))
        .with("starts_at", shown)
        .retry_after(left.unwrap_or_default())
}

fn refused(kind: Kind, item: &str, cause: &str) -> Problem {
    Problem::new(kind, format!("the sale of `{item}` {cause}"))
}
