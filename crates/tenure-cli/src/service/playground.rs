//! The playground: one stock sold in three ways, with faults, for people to watch.

use utoipa_axum::router::OpenApiRouter;

use super::App;

/// What of the playground is asked for under `/api/v1`.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
}
