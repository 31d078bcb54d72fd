//! What is sold.

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
use crate::app::AppState;
use crate::extract::{Body, Path};
use crate::problem::Problem;
use crate::responses;

/// All items.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Items {
    items: Vec<ShownItem>,
}

/// All items, by name; the first 200 with what their gates say.
#[utoipa::path(get, path = "/items", tag = "sales",
    responses((status = 200, description = "The items", body = Items),
        responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn list(Selling(sale): Selling) -> Result<Json<Items>, Problem> {
    let items = ask(sale.items()).await?;
    let (first, rest) = items.split_at(items.len().min(ITEMS_MAX));
    let mut shown = join_all(first.iter().map(|item| at_gate(&sale, item))).await;
    shown.extend(rest.iter().map(ShownItem::of));
    Ok(Json(Items { items: shown }))
}

/// Puts an item into the ledger, as a draft unless `open` is said.
#[utoipa::path(post, path = "/items", tag = "sales", request_body = ItemBody,
    responses((status = 201, description = "It is there", body = ShownItem,
            headers(("Location" = String, description = "Where it is"))),
        (status = 409, description = "There is one of that name", body = Problem),
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
    app.shop.look_soon();
    let base = &app.settings.base_path;
    let place = format!("{base}/api/v1/items/{}", path_segment(&item.name));
    let shown = Json(ShownItem::of(&item));
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], shown).into_response())
}

/// One item, with what its gate says unless that is away.
#[utoipa::path(get, path = "/items/{item}", tag = "sales",
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "The item", body = ShownItem),
        responses::NotFound, responses::NoLedger, responses::LedgerAway))]
pub(crate) async fn show(
    Selling(sale): Selling,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    let item = known(&sale, &name).await?;
    Ok(Json(at_gate(&sale, &item).await))
}

/// Sells an item on other terms from now on. Orders that were accepted keep theirs.
#[utoipa::path(patch, path = "/items/{item}", tag = "sales", request_body = ItemBody,
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "As it is now", body = ShownItem),
        responses::NoAdmin, responses::NotFound, responses::Invalid, responses::NoLedger,
        responses::SaleAway))]
pub(crate) async fn change(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
    Body(body): Body<ItemBody>,
) -> Result<Json<ShownItem>, Problem> {
    let terms = body.changed(&known(&sale, &name).await?.terms)?;
    told(&app, changing(sale.set_terms(&name, &terms)).await)
}

/// Puts an item on sale: its gate is loaded from the ledger, unless it runs already.
#[utoipa::path(post, path = "/items/{item}/open", tag = "sales",
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "As it is now", body = ShownItem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn open(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    let opening = ask_within(LONG_ANSWER_WITHIN, sale.open_item(&name));
    told(&app, opening.await)
}

/// Stops selling for a while. Orders in the queue are not touched.
#[utoipa::path(post, path = "/items/{item}/pause", tag = "sales",
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "As it is now", body = ShownItem),
        (status = 409, description = "It is not on sale", body = Problem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn pause(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    told(&app, changing(sale.pause(&name)).await)
}

/// Ends the sale of an item. Orders in the queue are not touched; it may be opened again.
#[utoipa::path(post, path = "/items/{item}/close", tag = "sales",
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "As it is now", body = ShownItem),
        (status = 409, description = "It was never on sale", body = Problem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn close(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    check_item(&name)?;
    told(&app, changing(sale.close(&name)).await)
}

/// Loads the gate from the ledger anew, also if it is in order. It refuses meanwhile.
#[utoipa::path(post, path = "/items/{item}/rebuild", tag = "sales",
    params(("item" = String, Path, description = "Its name")),
    responses((status = 200, description = "As it is now", body = ShownItem),
        (status = 503, description = "Gate or ledger is away, or another process is rebuilding it",
            body = Problem),
        responses::NoAdmin, responses::NotFound, responses::NoLedger))]
pub(crate) async fn rebuild(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
) -> Result<Json<ShownItem>, Problem> {
    known(&sale, &name).await?;
    let rebuilding = ask_within(LONG_ANSWER_WITHIN, sale.rebuild(&name));
    told(&app, rebuilding.await)
}

/// What an item is like after something was done with it.
pub(crate) fn told(
    app: &AppState,
    done: Result<Item, Problem>,
) -> Result<Json<ShownItem>, Problem> {
    app.shop.look_soon();
    Ok(Json(ShownItem::of(&done?)))
}

/// A gate that does not answer says nothing: the item is shown without it.
async fn at_gate(sale: &Sale, item: &Item) -> ShownItem {
    let shown = ShownItem::of(item);
    match standing(sale, &item.name).await {
        Ok(standing) => shown.at_gate(standing.as_ref()),
        Err(_) => shown,
    }
}
