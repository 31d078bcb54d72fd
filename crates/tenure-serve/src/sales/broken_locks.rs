//! Home-made locks to break: one stock sold under each, with its flaw. They do not touch the sale.

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
use crate::extract::{Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// The fault to inject.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wish {
    /// `exception`, `crash` or `slow`; default: no fault.
    #[param(value_type = Option<String>)]
    trouble: Option<Trouble>,
}

/// The sale, and the instance that served it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sold {
    #[schema(example = "sold one, 4999 left, served by port 8081")]
    message: String,
    /// Units left after this order.
    left: i64,
    port: u16,
}

/// Orders one unit with one of the classic broken locks. Demo mode only.
#[utoipa::path(get, path = "/order/v1/submitOrder/{step}", tag = "load tests",
    params(("step" = String, Path, description = "`v0` (no lock) to `v4`"), Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 403, description = "The service is read-only", body = Problem),
        (status = 404, description = "Not in demo mode, or unknown step", body = Problem),
        (status = 423, description = "`busy`: the lock is held, possibly forever", body = Problem),
        (status = 503, description = "The requested fault, or Redis is unavailable",
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
#[utoipa::path(post, path = "/order/v1/submitOrder/{step}", tag = "load tests",
    params(("step" = String, Path, description = "`v0` (no lock) to `v4`"), Wish),
    responses((status = 200, description = "Sold", body = Sold),
        (status = 404, description = "Not in demo mode, or unknown step", body = Problem),
        (status = 423, description = "`busy`: the lock is held, possibly forever", body = Problem),
        (status = 503, description = "The requested fault, or Redis is unavailable",
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
        let detail = "the classic broken locks are served in demo mode only: start `tenure serve` \
                      with --demo, and at most one Redis";
        return Err(Problem::new(Kind::NOT_FOUND, detail).with("port", port));
    };
    let Some(step) = Step::of_word(step) else {
        let detail = "unknown step: the classic broken locks are `v0` to `v4`";
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
        let detail = format!("the store of the demo is unavailable: {error:#}");
        let problem = Problem::new(Kind::UNAVAILABLE, detail).with("port", port);
        problem.retry_after(Duration::from_secs(1))
    })?;
    response(came, left, port)
}

fn response(came: Came, left: i64, port: u16) -> Result<Json<Sold>, Problem> {
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
            let detail = "the stock of this step is sold out: delete the keys `tenure-demo:*` and \
                          restart `tenure serve`";
            Problem::new(SOLD_OUT, detail).with("message", message)
        }
        Came::Locked => {
            let message = format!("locked, {left} left, served by port {port}");
            let detail = "another order holds the lock, or never released it";
            let problem = Problem::new(Kind::BUSY, detail).with("message", message);
            problem.retry_after(later)
        }
        Came::Broken(what) => Problem::new(Kind::UNAVAILABLE, what).retry_after(later),
    };
    Err(problem.with("left", left).with("port", port))
}
