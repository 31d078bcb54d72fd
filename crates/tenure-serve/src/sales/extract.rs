//! Asking the sale: whether there is one, who may change it, and for how long it may take.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_sale::{Item, OrderId, Request, Sale};
use tokio::time::timeout;

use super::refusal;
use crate::app::AppState;
use crate::problem::{Kind, Problem};

/// For a question.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// For an order or a change. A little longer than the sale itself gives the ledger, so that mostly its
/// own words are told.
pub(crate) const CHANGE_WITHIN: Duration = Duration::from_secs(7);
/// For what reads all orders of an item, or rebuilds its gate.
pub(crate) const LONG_ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// When to ask again after that.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The sale, where there is one.
pub(crate) struct Selling(pub(crate) Sale);

/// The sale, for those who may change items and stock.
pub(crate) struct Administering(pub(crate) Sale);

/// What the header `Idempotency-Key` says.
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
            let detail = "the header `Idempotency-Key` holds more than plain letters";
            Problem::new(Kind::INVALID, detail)
        })?;
        // By its draft it is a string in quotes; most clients send it without.
        let plain = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        Ok(Self(Some(plain.unwrap_or(text).to_owned())))
    }
}

/// What the sale says to a question.
pub(crate) fn ask<T>(
    asking: impl Future<Output = tenure_sale::Result<T>> + Send,
) -> impl Future<Output = Result<T, Problem>> + Send {
    ask_within(ANSWER_WITHIN, asking)
}

/// What the sale says to an order or a change.
pub(crate) fn changing<T>(
    asking: impl Future<Output = tenure_sale::Result<T>> + Send,
) -> impl Future<Output = Result<T, Problem>> + Send {
    ask_within(CHANGE_WITHIN, asking)
}

/// What the sale says, within a time.
pub(crate) fn ask_within<T>(
    limit: Duration,
    asking: impl Future<Output = tenure_sale::Result<T>> + Send,
) -> impl Future<Output = Result<T, Problem>> + Send {
    // It holds a way through the ledger, which is large, and is moved several times before it runs.
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
        "gate or ledger did not answer within {} s; whether a change was made is unknown: ask again",
        limit.as_secs()
    );
    Problem::new(Kind::UNAVAILABLE, detail).retry_after(RETRY_AFTER)
}

/// An item that must be there.
pub(crate) async fn known(sale: &Sale, name: &str) -> Result<Item, Problem> {
    check_item(name)?;
    let found = ask(sale.item(name)).await?;
    found.ok_or_else(|| {
        let detail = format!("there is no item `{name}` in the ledger: create it first");
        Problem::new(refusal::NO_ITEM, detail)
    })
}

/// The id of an order out of a path.
pub(crate) fn order_id(text: &str) -> Result<OrderId, Problem> {
    text.parse().map_err(|error: tenure_sale::Error| {
        // What cannot be an order is none.
        Problem::new(Kind::NOT_FOUND, error.to_string())
    })
}

/// Refuses what cannot be the name of an item before anybody is asked for it.
pub(crate) fn check_item(name: &str) -> Result<(), Problem> {
    Request::new(name, "buyer", "request")?;
    Ok(())
}

/// Refuses what cannot be the name of a buyer.
pub(crate) fn check_buyer(name: &str) -> Result<(), Problem> {
    Request::new("item", name, "request")?;
    Ok(())
}

/// Refuses what cannot be the id of a request, or the reference of a change.
pub(crate) fn check_reference(reference: &str) -> Result<(), Problem> {
    Request::new("item", "buyer", reference)?;
    Ok(())
}
