//! Sales over HTTP.

pub(crate) mod background;
mod broken_locks;
mod dead_letters;
mod extract;
mod item_body;
mod item_events;
mod item_snapshot;
mod items;
mod live_items;
mod load_test_order;
mod maintenance;
mod metrics;
mod order_events;
mod orders;
mod paging;
mod refusal;
pub(crate) mod shop;
mod stock;
mod submit;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

/// The sale routes.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(items::list, items::create))
        .routes(routes!(items::show, items::change))
        .routes(routes!(items::open))
        .routes(routes!(items::pause))
        .routes(routes!(items::close))
        .routes(routes!(items::rebuild))
        .routes(routes!(stock::set))
        .routes(routes!(stock::adjust))
        .routes(routes!(item_events::watch))
        .routes(routes!(maintenance::stats))
        .routes(routes!(maintenance::reconcile, maintenance::repair))
        .routes(routes!(maintenance::verify))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::requeue))
        .routes(routes!(dead_letters::discard))
        .routes(routes!(submit::submit))
        .routes(routes!(orders::show))
        .routes(routes!(orders::cancel))
        .routes(routes!(orders::pay))
        .routes(routes!(order_events::watch))
        .routes(routes!(orders::of_buyer))
        .routes(routes!(orders::of_user))
        .routes(routes!(orders::of_item))
        .routes(routes!(orders::of_request))
}

/// The classic load-test endpoints.
pub(crate) fn load_test_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(load_test_order::get, load_test_order::post))
        .routes(routes!(broken_locks::get, broken_locks::post))
}
