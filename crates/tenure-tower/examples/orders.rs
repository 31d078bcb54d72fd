//! A service whose requests for one order never overlap, in whatever process.
//!
//! ```sh
//! cargo run -p tenure-tower --example orders
//! ```
//!
//! It prints:
//!
//! ```text
//! POST /orders/7: 200 OK shipped
//! POST /orders/7 meanwhile: 423 Locked, the lock is held
//! POST /orders/8 meanwhile: 200 OK shipped
//! ```

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, Response};
use axum::routing::post;
use axum::{Extension, Router};
use http_body_util::BodyExt;
use tenure::{Fence, Tenure};
use tenure_tower::LockLayer;
use tokio::sync::Notify;
use tower_service::Service;

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    run("memory://", &mut std::io::stdout()).await
}

pub(crate) async fn run(url: &str, out: &mut impl Write) -> Result<(), BoxError> {
    let tenure = Tenure::connect(url).await?;
    // Order 7 is shipped when it is told to, so that another request meets it.
    let shipping = Arc::new(Shipping::default());
    let lock = LockLayer::new(tenure.as_locks(), |request| {
        let path = request.uri.path();
        path.starts_with("/orders/").then(|| path.to_owned())
    });
    let app = Router::new()
        .route("/orders/{id}", post(ship))
        .layer(lock)
        .with_state(Arc::clone(&shipping));

    let first = tokio::spawn(ask(app.clone(), "/orders/7"));
    shipping.begun.notified().await;
    let busy = ask(app.clone(), "/orders/7").await?;
    let other = ask(app, "/orders/8").await?;
    shipping.go.notify_one();
    writeln!(out, "POST /orders/7: {}", first.await??)?;
    writeln!(out, "POST /orders/7 meanwhile: {busy}")?;
    writeln!(out, "POST /orders/8 meanwhile: {other}")?;
    Ok(())
}

#[derive(Default)]
struct Shipping {
    begun: Notify,
    go: Notify,
}

async fn ship(
    State(shipping): State<Arc<Shipping>>,
    Path(id): Path<u64>,
    Extension(_fence): Extension<Fence>, // for `UPDATE … WHERE fence <= ?`
) -> &'static str {
    if id == 7 {
        shipping.begun.notify_one();
        shipping.go.notified().await;
    }
    "shipped"
}

/// The status of the response, and what it says.
async fn ask(mut app: Router, path: &str) -> Result<String, BoxError> {
    let request = Request::post(path).body(Body::empty())?;
    let response: Response<Body> = app.call(request).await?;
    let status = response.status();
    let text = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8(text.to_vec())?;
    if status.is_success() {
        return Ok(format!("{status} {text}"));
    }
    let is_held = text.contains("\"title\":\"the lock is held\"");
    Ok(format!(
        "{status}, {}",
        if is_held { "the lock is held" } else { &text }
    ))
}
