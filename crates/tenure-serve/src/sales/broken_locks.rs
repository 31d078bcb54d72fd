//! Home-made locks for people to break: one stock sold under each, with its flaw. Nothing of it touches
//! the sale.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_demo::broken_locks::{Came, Step, Trouble};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use super::extract::CHANGE_WITHIN;
use super::load_test_order::sold_message;
use super::refusal::SOLD_OUT;
use crate::app::AppState;
use crate::extract::{Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;

/// What is to go wrong.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wish {
    /// `exception`, `crash` or `slow`; nothing, if nothing is said.
    #[param(value_type = Option<String>)]
    trouble: Option<Trouble>,
}

/// What was sold, and by whom.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sold {
    #[schema(example = "sold one, 4999 left, served by port 8081")]
    message: String,
    /// What this order has left of the stock.
    left: i64,
    port: u16,
}

/// Orders one unit under one of the notes' locks. In demo mode only.
#[utoipa::path(get, path = "/submitOrder/{step}", tag = "load tests",
    params(("step" = String, Path, description = "`v0` without a lock to `v4`"), Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 403, description = "This service only shows", body = Problem),
        (status = 404, description = "Not in demo mode, or no such step", body = Problem),
        (status = 423, description = "`busy`: somebody has the lock, perhaps for ever", body = Problem),
        (status = 503, description = "The trouble that was asked for, or the store is away",
            body = Problem),
        responses::SoldOut))]
pub(crate) async fn get(
    State(app): State<AppState>,
    Path(step): Path<String>,
    Query(wish): Query<Wish>,
) -> Result<Json<Sold>, Problem> {
    order(&app, &step, wish.trouble).await
}

/// The same.
#[utoipa::path(post, path = "/submitOrder/{step}", tag = "load tests",
    params(("step" = String, Path, description = "`v0` without a lock to `v4`"), Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 404, description = "Not in demo mode, or no such step", body = Problem),
        (status = 423, description = "`busy`: somebody has the lock, perhaps for ever", body = Problem),
        (status = 503, description = "The trouble that was asked for, or the store is away",
            body = Problem),
        responses::SoldOut))]
pub(crate) async fn post(
    State(app): State<AppState>,
    Path(step): Path<String>,
    Query(wish): Query<Wish>,
) -> Result<Json<Sold>, Problem> {
    order(&app, &step, wish.trouble).await
}

async fn order(
    app: &AppState,
    step: &str,
    trouble: Option<Trouble>,
) -> Result<Json<Sold>, Problem> {
    let port = app.settings.address.port();
    let Some(locks) = &app.shop.broken_locks else {
        let detail = "the notes' broken locks are served in demo mode only: start `tenure serve` \
                      with --demo, and one Redis or none";
        return Err(Problem::new(Kind::NOT_FOUND, detail).with("port", port));
    };
    let Some(step) = Step::of_word(step) else {
        let detail = "there is no such step: the notes' locks are `v0` to `v4`";
        return Err(Problem::new(Kind::NOT_FOUND, detail).with("port", port));
    };
    let ordering = async {
        let came = locks.order(step, trouble).await?;
        Ok((came, locks.left(step).await?))
    };
    let done: anyhow::Result<(Came, i64)> = match timeout(CHANGE_WITHIN, ordering).await {
        Ok(done) => done,
        Err(late) => Err(late.into()),
    };
    let (came, left) = done.map_err(|error| {
        let detail = format!("the store of the demo does not serve: {error:#}");
        let problem = Problem::new(Kind::UNAVAILABLE, detail).with("port", port);
        problem.retry_after(Duration::from_secs(1))
    })?;
    told(came, left, port)
}

fn told(came: Came, left: i64, port: u16) -> Result<Json<Sold>, Problem> {
    let later = Duration::from_secs(1);
    let problem = match came {
        Came::Sold(left) => {
            let message = sold_message(1, u64::try_from(left).ok(), port);
            return Ok(Json(Sold {
                message,
                left,
                port,
            }));
        }
        Came::SoldOut => {
            let message = format!("sold out, served by port {port}");
            let detail = "the stock of this step is sold out: delete the keys \
                          `tenure-demo:*` and start `tenure serve` again";
            Problem::new(SOLD_OUT, detail).with("message", message)
        }
        Came::Locked => {
            let message = format!("locked, {left} left, served by port {port}");
            let detail = "another order has the lock, or had it and never let it go";
            let problem = Problem::new(Kind::BUSY, detail).with("message", message);
            problem.retry_after(later)
        }
        Came::Broken(what) => Problem::new(Kind::UNAVAILABLE, what).retry_after(later),
    };
    Err(problem.with("left", left).with("port", port))
}
