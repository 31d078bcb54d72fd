//! Locks over HTTP.
//!
//! A lock that is acquired over HTTP is a lease without a guard: the client renews it with `PUT`,
//! at any instance. A client that disconnects while it waits leaves the queue. If it disconnects
//! before it has read the response, its lease expires after the ttl.

mod acquire;
mod client_metrics;
pub(crate) mod desk;
mod force_release;
mod labels;
mod lease;
mod leases;
pub(crate) mod metrics;
mod refusals;
mod show;
pub(crate) mod sweep;
mod terraform;
pub(crate) mod terraform_info;
mod tickets;
mod waiters;

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::state::AppState;

/// The lock routes.
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
