//! How much there is of an item.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_view::sale::ShownItem;
use utoipa::ToSchema;

use super::extract::{Administering, Key, changing, check_item, check_reference};
use super::items::told;
use super::submit::chosen_id;
use crate::app::AppState;
use crate::extract::{Body, Path};
use crate::problem::{Kind, Problem};
use crate::responses;

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_024;

/// How much there is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StockBody {
    /// How many units in all, counted with what is sold.
    #[schema(example = 5500)]
    total: u64,
    /// Only if it is this now.
    expected: Option<u64>,
}

/// How much more or less there is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdjustBody {
    /// By so many units; below zero: units that are not sold are taken out.
    #[schema(example = -3)]
    delta: i64,
    /// Why, for people.
    reason: Option<String>,
    /// What this change is called: it is made once, however often it is asked for. The header
    /// `Idempotency-Key` says the same.
    reference: Option<String>,
}

/// An item whose stock was changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Adjusted {
    /// What the change is called.
    reference: String,
    #[serde(flatten)]
    item: ShownItem,
}

/// Sets the stock in all. To lower it, a consumer must be running once the item was opened.
#[utoipa::path(put, path = "/items/{item}/stock", tag = "sales", request_body = StockBody,
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "As it is now", body = ShownItem),
        (status = 409, description = "It is not as expected, or more is sold", body = Problem),
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
    told(&app, changing(setting).await)
}

/// Adds units, or takes units out that are not sold. Made once for each reference.
#[utoipa::path(post, path = "/items/{item}/stock/adjust", tag = "sales", request_body = AdjustBody,
    params(("item" = String, Path, description = "Its name"),
        ("Idempotency-Key" = Option<String>, Header, description = "What this change is called")),
    responses((status = 200, description = "As it is now", body = Adjusted),
        (status = 409, description = "Fewer units are left", body = Problem),
        (status = 503, description = "Whether it was done is unknown: ask again with `reference`",
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
            "cannot use this `reason`: it is at most {REASON_BYTES_MAX} bytes without control \
             characters"
        );
        return Err(Problem::new(Kind::INVALID, detail));
    }
    let adjusting = sale.adjust(&name, body.delta, reason, &reference);
    let adjusted = changing(adjusting).await;
    let Json(item) =
        told(&app, adjusted).map_err(|problem| problem.with("reference", &reference))?;
    Ok(Json(Adjusted { reference, item }))
}
