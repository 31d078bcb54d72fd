//! Access to the sale: whether there is one, who may change it, and time limits.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_sale::{Item, OrderId, Request, Sale};
use tokio::time::timeout;

use super::refusal;
use crate::problem::{Kind, Problem};
use crate::state::AppState;

/// Time limit of a query.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Time limit of an order or a change. A little longer than the sale's own limit for the ledger, so
/// that clients usually get the error of the sale.
pub(crate) const CHANGE_WITHIN: Duration = Duration::from_secs(7);
/// Time limit of requests that read all orders of an item or rebuild its gate.
pub(crate) const LONG_ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// When to retry after that.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The sale, if there is one.
pub(crate) struct Selling(pub(crate) Sale);

/// The sale, for requests that may change items and stock.
pub(crate) struct Administering(pub(crate) Sale);

/// The value of the header `Idempotency-Key`.
pub(crate) struct Key(pub(crate) Option<String>);

impl FromRequestParts<AppState> for Selling {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, app: &AppState) -> Result<Self, Problem> {
        app.sale.clone().map(Self).ok_or_else(refusal::no_sales)
    }
}

impl FromRequestParts<AppState> for Administering {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Problem> {
        let Selling(sale) = Selling::from_request_parts(parts, app).await?;
        app.settings.access.check_admin()?;
        Ok(Self(sale))
    }
}

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get("idempotency-key") else {
            return Ok(Self(None));
        };
        let text = value.to_str().map_err(|_| {
            let detail = "the header `Idempotency-Key` is not plain ASCII";
            Problem::new(Kind::INVALID, detail)
        })?;
        // The draft asks for a quoted string; most clients send it without quotes.
        let plain = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        Ok(Self(Some(plain.unwrap_or(text).to_owned())))
    }
}

/// Runs a query of the sale within its time limit.
pub(crate) fn ask<T>(
    asking: impl Future<Output = tenure_sale::Result<T>> + Send,
) -> impl Future<Output = Result<T, Problem>> + Send {
    ask_within(ANSWER_WITHIN, asking)
}

/// Runs an order or a change of the sale within its time limit.
pub(crate) fn changing<T>(
    asking: impl Future<Output = tenure_sale::Result<T>> + Send,
) -> impl Future<Output = Result<T, Problem>> + Send {
    ask_within(CHANGE_WITHIN, asking)
}

/// Runs an operation of the sale within a time limit.
pub(crate) fn ask_within<T>(
    limit: Duration,
    asking: impl Future<Output = tenure_sale::Result<T>> + Send,
) -> impl Future<Output = Result<T, Problem>> + Send {
    // Boxed: the future is large, and is moved several times before it runs.
    let asking = Box::pin(asking);
    async move {
        match timeout(limit, asking).await {
            Ok(said) => said.map_err(refusal::of_error),
            Err(_) => Err(late(limit)),
        }
    }
}

fn late(limit: Duration) -> Problem {
    let detail = format!(
        "gate or ledger did not respond within {} s; the outcome is unknown: retry",
        limit.as_secs()
    );
    Problem::new(Kind::UNAVAILABLE, detail).retry_after(RETRY_AFTER)
}

/// An item that must exist.
pub(crate) async fn known(sale: &Sale, name: &str) -> Result<Item, Problem> {
    check_item(name)?;
    let found = ask(sale.item(name)).await?;
    found.ok_or_else(|| {
        let detail = format!(
            "item `{name}` not found in the ledger: create it with `tenure sale item create`"
        );
        Problem::new(refusal::NO_ITEM, detail)
    })
}

/// The order id in a path.
pub(crate) fn order_id(text: &str) -> Result<OrderId, Problem> {
    text.parse().map_err(|error: tenure_sale::Error| {
        // An invalid id cannot exist.
        Problem::new(Kind::NOT_FOUND, error.to_string())
    })
}

/// Refuses an invalid item name before calling the sale.
pub(crate) fn check_item(name: &str) -> Result<(), Problem> {
    Request::new(name, "buyer", "request")?;
    Ok(())
}

/// Refuses an invalid buyer name.
pub(crate) fn check_buyer(name: &str) -> Result<(), Problem> {
    Request::new("item", name, "request")?;
    Ok(())
}

/// Refuses an invalid request id or reference.
pub(crate) fn check_reference(reference: &str) -> Result<(), Problem> {
    Request::new("item", "buyer", reference)?;
    Ok(())
}
