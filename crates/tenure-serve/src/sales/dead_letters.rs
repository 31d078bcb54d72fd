//! Dead letters: entries that the ledger rejected.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tenure_sale::OrderId;
use tenure_view::sale::{Decided, ShownLetter};
use utoipa::ToSchema;

use super::extract::{
    Administering, LONG_ANSWER_WITHIN, Selling, ask, ask_within, changing, known, order_id,
};
use super::paging::Listing;
use crate::extract::{Path, Query};
use crate::problem::Problem;
use crate::responses;
use crate::state::AppState;

/// Dead letters, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Letters {
    dead_letters: Vec<ShownLetter>,
}

/// Lists the dead letters of an item, oldest first. Their units stay reserved until you requeue or
/// discard them.
#[utoipa::path(get, path = "/api/v1/items/{item}/dlq", tag = "sales",
    params(("item" = String, Path, description = "Name of the item"), Listing),
    responses((status = 200, description = "The dead letters", body = Letters),
        responses::NoItem, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn list(
    Selling(sale): Selling,
    Path(item): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<Json<Letters>, Problem> {
    known(&sale, &item).await?;
    let letters = ask(sale.dead_letters(&item, listing.count())).await?;
    let dead_letters = letters.iter().map(ShownLetter::of).collect();
    Ok(Json(Letters { dead_letters }))
}

/// Sends a dead letter to the ledger again, after fixing the cause.
#[utoipa::path(post, path = "/api/v1/dlq/{order_id}/requeue", tag = "sales",
    params(("order_id" = String, Path, description = "Id of the order")),
    responses((status = 200, description = "New state of the order", body = Decided),
        (status = 404, description = "Not a dead letter", body = Problem),
        (status = 409, description = "The ledger rejects it again", body = Problem),
        responses::NoAdmin, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn requeue(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(id): Path<String>,
) -> Result<Json<Decided>, Problem> {
    let id = order_id(&id)?;
    let state = changing(sale.requeue(&id)).await?;
    Ok(decided(&app, &id, state.word()))
}

/// Discards a dead letter: cancels the order and returns its units.
#[utoipa::path(post, path = "/api/v1/dlq/{order_id}/discard", tag = "sales",
    params(("order_id" = String, Path, description = "Id of the order")),
    responses((status = 200, description = "Discarded", body = Decided),
        (status = 404, description = "Not a dead letter", body = Problem),
        responses::NoAdmin, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn discard(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(id): Path<String>,
) -> Result<Json<Decided>, Problem> {
    let id = order_id(&id)?;
    ask_within(LONG_ANSWER_WITHIN, sale.discard(&id)).await?;
    Ok(decided(&app, &id, "discarded"))
}

/// The response to a change of a dead letter. Watchers of its item see the change soon.
fn decided(app: &AppState, id: &OrderId, state: &'static str) -> Json<Decided> {
    app.shop.request_refresh();
    let order_id = id.to_string();
    Json(Decided { order_id, state })
}
