//! How the sale refuses, as problems.

use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use tenure_sale::{Answer, Error, ErrorKind, Outcome, Request};
use tenure_view::sale::at;

use crate::app::AppState;
use crate::problem::{Kind, Problem};

/// When to ask again a gate that is busy or being rebuilt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One line for each kind.
macro_rules! kinds {
    ($($name:ident = $status:ident, $code:literal, $title:literal;)*) => {
        $(pub(crate) const $name: Kind = Kind::new(StatusCode::$status, $code, $title);)*
    };
}

kinds! {
    NO_SALES = NOT_IMPLEMENTED, "no_sales", "this service sells nothing";
    NO_ITEM = NOT_FOUND, "no_item", "there is no such item on sale";
    SOLD_OUT = CONFLICT, "sold_out", "fewer units are left than were asked for";
    LIMIT = CONFLICT, "limit", "one buyer, or one order, may not have so many";
    PAUSED = CONFLICT, "paused", "the sale pauses";
    NOT_STARTED = TOO_EARLY, "not_started", "the sale has not begun";
    ENDED = GONE, "ended", "the sale is over";
    REQUEST_REUSED = UNPROCESSABLE_ENTITY, "request_reused", "the same request asked for something else";
    BACKLOG = SERVICE_UNAVAILABLE, "backlog", "too many orders wait for the ledger";
    REBUILDING = SERVICE_UNAVAILABLE, "rebuilding", "the gate is being rebuilt";
}

/// There is no ledger.
pub(crate) fn no_sales() -> Problem {
    let detail =
        "this service has no ledger, so it sells nothing: start `tenure serve` with --ledger";
    Problem::new(NO_SALES, detail)
}

/// What the sale could not do.
pub(crate) fn of_error(error: Error) -> Problem {
    match error.kind() {
        ErrorKind::NoItem => Problem::new(NO_ITEM, error.to_string()),
        _ => error.into(),
    }
}

/// What an answer is that gives no order; `None` if it gives one.
pub(crate) fn of(app: &AppState, answer: &Answer, request: &Request) -> Option<Problem> {
    let (item, units) = (request.item(), request.wanted());
    let problem = match &answer.outcome {
        Outcome::Accepted(_) | Outcome::Replayed(_) => return None,
        Outcome::Conflict(order) => {
            let detail = format!(
                "request `{}` of buyer `{}` is order `{order}`, for another number of units: use \
                 another id for another order",
                request.id(),
                request.buyer()
            );
            Problem::new(REQUEST_REUSED, detail).with("order_id", order.to_string())
        }
        Outcome::NoItem => {
            let detail =
                format!("`{item}` is not on sale: there is no such item, or it is a draft");
            Problem::new(NO_ITEM, detail)
        }
        Outcome::NotStarted => not_started(item, app.shop.starts_at(item)),
        Outcome::Ended => refused(ENDED, item, "is over"),
        Outcome::Paused => refused(PAUSED, item, "pauses: come back later"),
        Outcome::LimitReached => {
            let detail = format!(
                "buyer `{}` may not have `{units}` of `{item}`",
                request.buyer()
            );
            Problem::new(LIMIT, detail)
        }
        Outcome::SoldOut => Problem::new(SOLD_OUT, format!("`{item}` is sold out")),
        Outcome::Busy => refused(BACKLOG, item, "waits for the ledger: ask again in a moment")
            .retry_after(RETRY_AFTER),
        Outcome::StaleEpoch => refused(
            REBUILDING,
            item,
            "waits for its gate: ask again in a moment",
        )
        .retry_after(RETRY_AFTER),
    };
    Some(problem.with("left", answer.left))
}

fn not_started(item: &str, starts_at: Option<SystemTime>) -> Problem {
    let Some(starts_at) = starts_at else {
        return refused(NOT_STARTED, item, "has not begun: come back later");
    };
    let (shown, left) = (at(starts_at), starts_at.duration_since(SystemTime::now()));
    refused(NOT_STARTED, item, &format!("begins at {shown}"))
        .with("starts_at", shown)
        .retry_after(left.unwrap_or_default())
}

fn refused(kind: Kind, item: &str, cause: &str) -> Problem {
    Problem::new(kind, format!("the sale of `{item}` {cause}"))
}
