//! Locks over HTTP.
//!
//! A lock that is taken over HTTP is a lease without a guard: the client renews it by `PUT`, and any
//! instance of the service can. A client that goes away while it waits leaves the queue; one that goes
//! away before it has read the answer leaves a lease that ends by its ttl.

mod acquire;
mod callers;
mod force;
mod lease;
mod leases;
mod look;
mod measured;
mod meters;
mod refusals;
mod terraform;
mod tickets;

use std::time::Duration;

use prometheus_client::registry::Registry;
use tenure::Locks;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use self::callers::Callers;
use self::leases::Leases;
use self::meters::Meters;
pub use self::meters::Seen;
pub use self::terraform::hide_id;
use self::tickets::Tickets;
use super::App;

/// How often leases are looked at that may have ended.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What the requests for locks share.
#[derive(Debug)]
pub struct Desk {
    pub meters: Meters,
    pub callers: Callers,
    leases: Leases,
    tickets: Tickets,
}

impl Desk {
    pub fn new(registry: &mut Registry, locks: &Locks) -> Self {
        Self {
            meters: Meters::new(registry, locks),
            callers: Callers::default(),
            leases: Leases::default(),
            tickets: Tickets::default(),
        }
    }
}

/// What of locks is asked for under `/api/v1`.
pub fn routes() -> OpenApiRouter<App> {
    let by_name = terraform::by_name;
    OpenApiRouter::new()
        .routes(routes!(look::list))
        .routes(routes!(acquire::acquire, look::show, force::release))
        .routes(routes!(lease::renew, lease::release))
        .routes(routes!(look::history))
        .routes(routes!(look::all_history))
        .routes(routes!(terraform::lock, terraform::unlock).map(|routes| routes.fallback(by_name)))
}

/// Looks after leases that end without a word, until the service stops.
pub async fn sweep(app: App) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => leases::sweep(&app),
            () = app.stop.cancelled() => return,
        }
    }
}
