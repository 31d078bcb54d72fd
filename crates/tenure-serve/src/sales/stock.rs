//! How much there is of an item.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_view::sale::ShownItem;
use utoipa::ToSchema;

use super::extract::{Administering, Key, changing, check_item, check_reference};
use super::items::item_response;
use super::submit::chosen_id;
use crate::extract::{Body, Path};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_024;

/// The new stock.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StockBody {
    /// Total units, including sold ones.
    #[schema(example = 5500)]
    total: u64,
    /// Only if the total is this now.
    expected: Option<u64>,
}

/// A change of the stock.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdjustBody {
    /// Units to add; negative removes unsold units.
    #[schema(example = -3)]
    delta: i64,
    /// Reason, kept in the journal.
    reason: Option<String>,
    /// Idempotency key: a retry changes nothing. Also as the header `Idempotency-Key`.
    reference: Option<String>,
}

/// An item whose stock was changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Adjusted {
    /// Idempotency key of the change.
    reference: String,
    #[serde(flatten)]
    item: ShownItem,
}

/// Sets the total stock. Once the item was opened, lowering it needs a running consumer.
#[utoipa::path(put, path = "/api/v1/items/{item}/stock", tag = "sales", request_body = StockBody,
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The new state", body = ShownItem),
        (status = 409, description = "The stock is not as expected, or more is sold", body = Problem),
        responses::NoAdmin, responses::NotFound, responses::Invalid, responses::NoLedger,
        responses::SaleAway))]
pub(crate) async fn set(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
    Body(body): Body<StockBody>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    let setting = sale.set_stock(&name, body.total, body.expected);
    item_response(&app, changing(setting).await)
}

/// Adds units, or removes unsold ones; once per reference.
#[utoipa::path(post, path = "/api/v1/items/{item}/stock/adjust", tag = "sales", request_body = AdjustBody,
    params(("item" = String, Path, description = "Name of the item"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key")),
    responses((status = 200, description = "The new state", body = Adjusted),
        (status = 409, description = "Not enough units left", body = Problem),
        (status = 503, description = "Unknown outcome: retry with the same `reference`",
            body = Problem),
        responses::NoAdmin, responses::NotFound, responses::Invalid, responses::NoLedger))]
pub(crate) async fn adjust(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
    Key(key): Key,
    Body(body): Body<AdjustBody>,
) -> Result<Json<Adjusted>, Problem> {
    check_item(&name)?;
    let reference = chosen_id("reference", key, body.reference)?;
    check_reference(&reference)?;
    let reason = body.reason.as_deref().unwrap_or("over HTTP");
    if reason.len() > REASON_BYTES_MAX || reason.contains(char::is_control) {
        let detail = format!(
            "invalid `reason`: expected at most {REASON_BYTES_MAX} bytes without control characters"
        );
        return Err(Problem::new(Kind::INVALID, detail));
    }
    let adjusting = sale.adjust(&name, body.delta, reason, &reference);
    let adjusted = changing(adjusting).await;
    let Json(item) =
        item_response(&app, adjusted).map_err(|problem| problem.with("reference", &reference))?;
    Ok(Json(Adjusted { reference, item }))
}
