//! Entries that the ledger did not take, and what to do about them.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tenure_view::sale::{Decided, ShownLetter};
use utoipa::ToSchema;

use super::extract::{
    Administering, LONG_ANSWER_WITHIN, Selling, ask, ask_within, changing, known, order_id,
};
use super::paging::Listing;
use crate::app::AppState;
use crate::extract::{Path, Query};
use crate::problem::Problem;
use crate::responses;

/// Dead letters, from the oldest on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Letters {
    dead_letters: Vec<ShownLetter>,
}

/// The dead letters of an item, from the oldest on. Their units stay set aside until somebody decides.
#[utoipa::path(get, path = "/items/{item}/dlq", tag = "sales",
    params(("item" = String, Path, description = "Its name"), Listing),
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

/// Brings a dead letter to the ledger once more, after what stood in its way is gone.
#[utoipa::path(post, path = "/dlq/{order_id}/requeue", tag = "sales",
    params(("order_id" = String, Path, description = "The order's id")),
    responses((status = 200, description = "What became of the order", body = Decided),
        (status = 404, description = "It is not among the dead", body = Problem),
        (status = 409, description = "The ledger does not take it now either", body = Problem),
        responses::NoAdmin, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn requeue(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(id): Path<String>,
) -> Result<Json<Decided>, Problem> {
    let id = order_id(&id)?;
    let state = changing(sale.requeue(&id)).await?;
    app.shop.look_soon();
    Ok(Json(Decided {
        order_id: id.to_string(),
        state: state.word(),
    }))
}

/// Gives a dead letter up: the order is cancelled and its units go back.
#[utoipa::path(post, path = "/dlq/{order_id}/discard", tag = "sales",
    params(("order_id" = String, Path, description = "The order's id")),
    responses((status = 200, description = "It is discarded", body = Decided),
        (status = 404, description = "It is not among the dead", body = Problem),
        responses::NoAdmin, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn discard(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(id): Path<String>,
) -> Result<Json<Decided>, Problem> {
    let id = order_id(&id)?;
    ask_within(LONG_ANSWER_WITHIN, sale.discard(&id)).await?;
    app.shop.look_soon();
    Ok(Json(Decided {
        order_id: id.to_string(),
        state: "discarded",
    }))
}
