//! Sales over HTTP.

use utoipa_axum::router::OpenApiRouter;

use super::App;

/// What of sales is asked for under `/api/v1`.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
}
