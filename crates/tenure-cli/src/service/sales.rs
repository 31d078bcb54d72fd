//! Sales over HTTP.

mod asking;
mod broken_locks;
mod counted;
mod dead_letters;
mod item_body;
mod items;
mod listing;
mod live;
mod order_events;
mod orders;
mod picture;
mod refusal;
mod shop;
mod stock;
mod submit;
mod submit_order;
mod upkeep;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::shop::{Shop, source, start};
use super::App;

/// What of sales is asked for under `/api/v1`.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(items::list, items::create))
        .routes(routes!(items::show, items::change))
        .routes(routes!(items::open))
        .routes(routes!(items::pause))
        .routes(routes!(items::close))
        .routes(routes!(items::rebuild))
        .routes(routes!(stock::set))
        .routes(routes!(stock::adjust))
        .routes(routes!(live::watch))
        .routes(routes!(upkeep::stats))
        .routes(routes!(upkeep::reconcile, upkeep::repair))
        .routes(routes!(upkeep::verify))
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

/// What the notes' load tests ask for, under `/order/v1`.
pub fn load_test_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(submit_order::get, submit_order::post))
        .routes(routes!(broken_locks::get, broken_locks::post))
}
