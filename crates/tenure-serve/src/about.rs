//! `GET /about`: this service and its server.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tenure_view::time::{millis, moment};
use utoipa::ToSchema;

use crate::state::AppState;
use crate::store_server::Store;

/// How long the server may take to answer `INFO`.
const INFO_WITHIN: Duration = Duration::from_secs(1);

/// This service.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, for programs to read"
)]
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct About {
    version: &'static str,
    instance: Instance,
    /// URLs of the locks.
    locks: String,
    /// URL of the ledger, if there are sales.
    ledger: Option<String>,
    /// Whether locks of others can be released here.
    admin: bool,
    read_only: bool,
    demo: bool,
    /// Whether requests need a token.
    token: bool,
    sales: bool,
    limits: Limits,
    /// The Redis server; null if it does not respond, or the locks are in this process.
    store: Option<Store>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Instance {
    host: String,
    pid: u32,
    port: u16,
    started_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Limits {
    max_body: usize,
    max_connections: usize,
    max_waits: usize,
    max_streams: usize,
    rate: Option<u32>,
    /// How long one request may wait for a lock, and how long its ticket is valid.
    max_wait_ms: u64,
    keep_place_ms: u64,
}

/// Version, settings, limits and the Redis server of this service.
#[utoipa::path(get, path = "/api/v1/about", tag = "operations",
    responses((status = 200, description = "This service", body = About)))]
pub(crate) async fn show(State(app): State<AppState>) -> Json<About> {
    let settings = &app.settings;
    let (access, limits) = (&settings.access, &settings.limits);
    let store = tokio::time::timeout(INFO_WITHIN, app.store.ask()).await;
    Json(About {
        version: env!("CARGO_PKG_VERSION"),
        instance: Instance {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            pid: std::process::id(),
            port: settings.address.port(),
            started_at: moment(app.started_at),
        },
        locks: app.place.clone(),
        ledger: settings.ledger.clone(),
        admin: access.admin,
        read_only: access.read_only,
        demo: settings.demo,
        token: access.token.is_some(),
        sales: app.sale.is_some(),
        limits: Limits {
            max_body: limits.max_body,
            max_connections: limits.max_connections,
            max_waits: limits.max_waits,
            max_streams: limits.max_streams,
            rate: limits.rate,
            max_wait_ms: millis(limits.max_wait),
            keep_place_ms: millis(limits.keep_place),
        },
        store: store.ok().flatten(),
    })
}
