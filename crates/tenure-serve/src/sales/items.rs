//! Items on sale.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde::Serialize;
use tenure_sale::{Item, Sale};
use tenure_view::sale::ShownItem;
use utoipa::ToSchema;

use super::extract::{
    Administering, LONG_ANSWER_WITHIN, Selling, ask, ask_within, changing, check_item, known,
};
use super::item_body::ItemBody;
use super::item_snapshot::standing;
use super::metrics::ITEMS_MAX;
use super::submit::path_segment;
use crate::extract::{Body, Path};
use crate::problem::Problem;
use crate::responses;
use crate::state::AppState;

/// All items.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Items {
    items: Vec<ShownItem>,
}

/// Lists all items by name; the first 200 with the state of their gates.
#[utoipa::path(get, path = "/api/v1/items", tag = "sales",
    responses((status = 200, description = "The items", body = Items),
        responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn list(Selling(sale): Selling) -> Result<Json<Items>, Problem> {
    let items = ask(sale.items()).await?;
    let (first, rest) = items.split_at(items.len().min(ITEMS_MAX));
    let mut shown = join_all(first.iter().map(|item| at_gate(&sale, item))).await;
    shown.extend(rest.iter().map(ShownItem::of));
    Ok(Json(Items { items: shown }))
}

/// Creates an item, as a draft unless `open` is true.
#[utoipa::path(post, path = "/api/v1/items", tag = "sales", request_body = ItemBody,
    responses((status = 201, description = "Created", body = ShownItem,
            headers(("Location" = String, description = "Path of the item"))),
        (status = 409, description = "The item exists already", body = Problem),
        responses::NoAdmin, responses::Invalid, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn create(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Body(body): Body<ItemBody>,
) -> Result<Response, Problem> {
    let new = body.new_item()?;
    let mut item = changing(sale.create(&new)).await?;
    if body.open {
        item = ask_within(LONG_ANSWER_WITHIN, sale.open_item(&item.name)).await?;
    }
    app.shop.request_refresh();
    let base = &app.settings.base_path;
    let place = format!("{base}/api/v1/items/{}", path_segment(&item.name));
    let shown = Json(ShownItem::of(&item));
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], shown).into_response())
}

/// Shows one item, with the state of its gate if available.
#[utoipa::path(get, path = "/api/v1/items/{item}", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The item", body = ShownItem),
        responses::NotFound, responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn show(
    Selling(sale): Selling,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    let item = known(&sale, &name).await?;
    Ok(Json(at_gate(&sale, &item).await))
}

/// Changes the terms of an item. Accepted orders keep theirs.
#[utoipa::path(patch, path = "/api/v1/items/{item}", tag = "sales", request_body = ItemBody,
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The new state", body = ShownItem),
        responses::NoAdmin, responses::NotFound, responses::Invalid, responses::NoLedger,
        responses::SaleAway))]
pub(crate) async fn change(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
    Body(body): Body<ItemBody>,
) -> Result<Json<ShownItem>, Problem> {
    let terms = body.changed(&known(&sale, &name).await?.terms)?;
    item_response(&app, changing(sale.set_terms(&name, &terms)).await)
}

/// Opens the sale of an item: loads its gate from the ledger if needed.
#[utoipa::path(post, path = "/api/v1/items/{item}/open", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The new state", body = ShownItem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn open(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    let opening = ask_within(LONG_ANSWER_WITHIN, sale.open_item(&name));
    item_response(&app, opening.await)
}

/// Pauses the sale of an item. Queued orders are kept.
#[utoipa::path(post, path = "/api/v1/items/{item}/pause", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The new state", body = ShownItem),
        (status = 409, description = "The item is not on sale", body = Problem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn pause(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    item_response(&app, changing(sale.pause(&name)).await)
}

/// Closes the sale of an item. Queued orders are kept; it can be opened again.
#[utoipa::path(post, path = "/api/v1/items/{item}/close", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The new state", body = ShownItem),
        (status = 409, description = "The item was never on sale", body = Problem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn close(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    item_response(&app, changing(sale.close(&name)).await)
}

/// Rebuilds the gate from the ledger, even if it is consistent. It refuses orders meanwhile.
#[utoipa::path(post, path = "/api/v1/items/{item}/rebuild", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The new state", body = ShownItem),
        (status = 503, description = "Gate or ledger is unavailable, or another process is \
                                      rebuilding the gate",
            body = Problem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger))]
pub(crate) async fn rebuild(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    known(&sale, &name).await?;
    let rebuilding = ask_within(LONG_ANSWER_WITHIN, sale.rebuild(&name));
    item_response(&app, rebuilding.await)
}

/// The item after a change.
pub(crate) fn item_response(
    app: &AppState,
    done: Result<Item, Problem>,
) -> Result<Json<ShownItem>, Problem> {
    app.shop.request_refresh();
    Ok(Json(ShownItem::of(&done?)))
}

/// If the gate does not respond, the item is shown without its state.
async fn at_gate(sale: &Sale, item: &Item) -> ShownItem {
    let shown = ShownItem::of(item);
    match standing(sale, &item.name).await {
        Ok(standing) => shown.at_gate(standing.as_ref()),
        Err(_) => shown,
    }
}
