//! The service as a whole: the router and the background work.

use std::fmt;

use axum::Router;
use tokio::net::TcpListener;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::middleware::RequestLayer;
use crate::parts::Parts;
use crate::problem::{Kind, Problem};
use crate::settings::Settings;
use crate::state::AppState;
use crate::{
    about, connections, events, health, lock_board, locks, metrics, openapi, page, playground,
    sales, stats,
};

/// The service. Cheap to clone; clones are the same service.
#[derive(Clone)]
pub struct App {
    state: AppState,
}

impl App {
    /// Builds the service. Nothing runs yet.
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let state = AppState::new(settings, parts);
        Self { state }
    }

    /// All routes of the service below [`Settings::base_path`], to be merged into another router.
    /// [`run_background`](Self::run_background) must run as well.
    ///
    /// Without a base path the router has its own fallback, so it cannot be merged with a router
    /// that has one too. Limits by address need [`axum::extract::ConnectInfo`] with a
    /// [`SocketAddr`](std::net::SocketAddr).
    pub fn router(&self) -> Router {
        let inner = routes(&self.state);
        match self.state.settings.base_path.as_str() {
            "" => inner,
            base => page::below(base, inner),
        }
    }

    /// Does the work that no request does: polls locks and sales for watchers, counts, writes
    /// orders to the ledger. Ends soon after [`stop`](Self::stop).
    pub async fn run_background(&self) {
        let state = &self.state;
        state.in_background("locks", lock_board::run);
        state.in_background("stats", stats::run);
        state.in_background("leases", locks::sweep::run);
        let selling = sales::background::start(state);
        playground::end_with_service(state).await;
        selling.await;
    }

    /// Serves until [`stop`](Self::stop), then finishes what is in progress: router, background
    /// work and connections.
    pub async fn serve(&self, listener: TcpListener) {
        let settings = &self.state.settings;
        let (router, stop) = (self.whole_router(), self.state.stop.clone());
        let serving = connections::serve(listener, router, settings, stop);
        tokio::join!(serving, self.run_background());
    }

    /// Stops [`serve`](Self::serve), [`run_background`](Self::run_background), waiting requests and
    /// streams. A second call has no effect.
    pub fn stop(&self) {
        self.state.stop.cancel();
    }

    /// The router, and a problem for every path outside of it.
    fn whole_router(&self) -> Router {
        let base = self.state.settings.base_path.clone();
        if base.is_empty() {
            return self.router();
        }
        let outside = Router::new().fallback(move || nothing_here(&base));
        let outside = outside.layer(RequestLayer(self.state.clone()));
        self.router().fallback_service(outside)
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.state.settings;
        f.debug_struct("App")
            .field("settings", settings)
            .finish_non_exhaustive()
    }
}

/// All routes, as they are without a base path. Each has its whole path: a nested router would cost
/// every request a layer and a copy of its URI.
fn routes(state: &AppState) -> Router {
    let (documented, document) = OpenApiRouter::with_openapi(openapi::Description::openapi())
        .merge(locks::routes())
        .routes(routes!(events::follow))
        .routes(routes!(stats::show))
        .routes(routes!(about::show))
        .merge(sales::routes())
        .merge(playground::routes())
        .merge(sales::load_test_routes())
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .split_for_parts();
    documented
        .merge(openapi::routes(document, &state.settings.base_path))
        .merge(page::routes())
        .fallback(|| nothing_here(""))
        .layer(RequestLayer(state.clone()))
        .with_state(state.clone())
}

/// The response for paths that do not exist.
fn nothing_here(base: &str) -> std::future::Ready<Problem> {
    let detail = format!("path not found: see {base}/openapi.json");
    std::future::ready(Problem::new(Kind::NOT_FOUND, detail))
}
