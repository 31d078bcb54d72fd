//! Locks over HTTP.
//!
//! A lock that is taken over HTTP is a lease without a guard: the client renews it by `PUT`, and any
//! instance of the service can. A client that goes away while it waits leaves the queue; one that goes
//! away before it has read the answer leaves a lease that ends by its ttl.

mod acquire;
mod client_metrics;
mod force_release;
mod lease;
mod leases;
mod metrics;
mod refusals;
mod show;
mod terraform;
mod tickets;
mod waiters;

use std::time::Duration;

use prometheus_client::registry::Registry;
use tenure::Locks;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use self::leases::Leases;
use self::metrics::Meters;
pub(crate) use self::metrics::Seen;
pub(crate) use self::terraform::hide_id;
use self::tickets::Tickets;
use self::waiters::Callers;
use crate::app::AppState;

/// How often leases are looked at that may have ended.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What the requests for locks share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) meters: Meters,
    pub(crate) callers: Callers,
    leases: Leases,
    tickets: Tickets,
}

impl Desk {
    pub(crate) fn new(registry: &mut Registry, locks: &Locks) -> Self {
        Self {
            meters: Meters::new(registry, locks),
            callers: Callers::default(),
            leases: Leases::default(),
            tickets: Tickets::default(),
        }
    }
}

/// What of locks is asked for under `/api/v1`.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    let by_name = terraform::by_name;
    OpenApiRouter::new()
        .routes(routes!(show::list))
        .routes(routes!(
            acquire::acquire,
            show::show,
            force_release::release
        ))
        .routes(routes!(lease::renew, lease::release))
        .routes(routes!(show::history))
        .routes(routes!(show::all_history))
        .routes(routes!(terraform::lock, terraform::unlock).map(|routes| routes.fallback(by_name)))
}

/// Looks after leases that end without a word, until the service stops.
pub(crate) async fn sweep(app: AppState) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => leases::sweep(&app),
            () = app.stop.cancelled() => return,
        }
    }
}
