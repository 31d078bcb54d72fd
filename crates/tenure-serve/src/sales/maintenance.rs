//! Statistics and consistency checks of an item.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tenure_sale::{Mode, Sale};
use tenure_view::sale::{ShownReport, ShownStats, ShownVerdict};
use utoipa::IntoParams;

use super::extract::{
    Administering, LONG_ANSWER_WITHIN, Selling, ask, ask_within, check_item, known,
};
use crate::extract::{Path, Query};
use crate::problem::Problem;
use crate::responses;
use crate::state::AppState;

/// Options.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Repairing {
    /// Rebuild the gate from the ledger if they disagree.
    #[serde(default)]
    repair: bool,
}

/// Shows the statistics of an item: left, queued, sold, orders by state.
#[utoipa::path(get, path = "/api/v1/items/{item}/stats", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The statistics", body = ShownStats),
        responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn stats(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(name): Path<String>,
) -> Result<Json<ShownStats>, Problem> {
    let _place = app.limits.heavy().await?;
    let item = known(&sale, &name).await?;
    let standing = ask(sale.gate().standing(&name)).await?;
    let counts = ask_within(LONG_ANSWER_WITHIN, sale.ledger().counts(&name)).await?;
    Ok(Json(ShownStats::of(&item, standing.as_ref(), &counts)))
}

/// Checks whether gate, queue and ledger agree. Repairs nothing.
#[utoipa::path(get, path = "/api/v1/items/{item}/reconcile", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The result", body = ShownReport),
        responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn reconcile(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(name): Path<String>,
) -> Result<Json<ShownReport>, Problem> {
    let _place = app.limits.heavy().await?;
    compared(&sale, &name, Mode::DryRun).await
}

/// The same; with `repair`, rebuilds the gate from the ledger if they disagree.
#[utoipa::path(post, path = "/api/v1/items/{item}/reconcile", tag = "sales",
    params(("item" = String, Path, description = "Name of the item"), Repairing),
    responses((status = 200, description = "The result", body = ShownReport),
        responses::NoAdmin, responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn repair(
    State(app): State<AppState>,
    Administering(sale): Administering,
    Path(name): Path<String>,
    Query(repairing): Query<Repairing>,
) -> Result<Json<ShownReport>, Problem> {
    let mode = if repairing.repair {
        Mode::Repair
    } else {
        Mode::DryRun
    };
    let report = compared(&sale, &name, mode).await;
    app.shop.request_refresh();
    report
}

/// Checks that nothing was oversold or lost. Reads all orders of the item.
#[utoipa::path(get, path = "/api/v1/items/{item}/verify", tag = "sales",
    params(("item" = String, Path, description = "Name of the item")),
    responses((status = 200, description = "The result", body = ShownVerdict),
        responses::NotFound, responses::NoLedger, responses::SaleAway))]
pub(crate) async fn verify(
    State(app): State<AppState>,
    Selling(sale): Selling,
    Path(name): Path<String>,
) -> Result<Json<ShownVerdict>, Problem> {
    let _place = app.limits.heavy().await?;
    check_item(&name)?;
    let verdict = ask_within(LONG_ANSWER_WITHIN, sale.verify(&name)).await?;
    Ok(Json(ShownVerdict::of(&verdict)))
}

async fn compared(sale: &Sale, name: &str, mode: Mode) -> Result<Json<ShownReport>, Problem> {
    check_item(name)?;
    let report = ask_within(LONG_ANSWER_WITHIN, sale.reconcile(name, mode)).await?;
    Ok(Json(ShownReport::of(&report)))
}
