//! The service as a whole: what all requests share, the router, the background work.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use prometheus_client::registry::Registry;
use tenure::Locks;
use tenure_demo::broken_locks::BrokenLocks;
use tenure_sale::Sale;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::about::StoreServer;
use crate::limits::Limits;
use crate::lock_board::Board;
use crate::locks::Desk;
use crate::metrics::Metrics;
use crate::middleware::RequestLayer;
use crate::playground::Ground;
use crate::problem::{Kind, Problem};
use crate::process_metrics::Process;
use crate::sales::Shop;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::{
    about, connections, events, health, lock_board, locks, metrics, openapi, page, playground,
    sales, stats,
};

/// How long a run of the playground may take to end when the service does.
const PLAYGROUND_WITHIN: Duration = Duration::from_millis(1_500);

/// What the service is made of.
pub struct Parts {
    /// The locks. Their client should not hand leases off inside the process: two callers who know the
    /// same lease id could release each other.
    pub locks: Locks,
    /// Where the locks are, with passwords: never shown.
    pub urls: Vec<String>,
    /// The sale, where there is a ledger.
    pub sale: Option<Sale>,
    /// Home-made locks to try, in demo mode.
    pub broken_locks: Option<BrokenLocks>,
}

/// The service. Cheap to clone; clones are the same service.
#[derive(Clone)]
pub struct App {
    state: AppState,
}

/// What all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Shared>);

/// What an [`AppState`] holds.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) locks: Locks,
    /// Where the locks are, without passwords.
    pub(crate) place: String,
    pub(crate) store: StoreServer,
    /// None where the service has no ledger.
    pub(crate) sale: Option<Sale>,
    pub(crate) shop: Shop,
    pub(crate) ground: Ground,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) desk: Desk,
    pub(crate) board: Arc<Board>,
    pub(crate) stats: Stats,
    pub(crate) started_at: SystemTime,
    /// Cancelled when the service stops: everything that waits or streams ends then.
    pub(crate) stop: CancellationToken,
}

impl Parts {
    /// Locks, and where they are: without a sale and without home-made locks.
    pub fn new<U: Into<String>>(locks: Locks, urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            locks,
            urls: urls.into_iter().map(Into::into).collect(),
            sale: None,
            broken_locks: None,
        }
    }
}

/// Without the passwords.
impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl App {
    /// Puts the service together. Nothing runs yet.
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let Parts {
            locks,
            urls,
            sale,
            broken_locks,
        } = parts;
        let started_at = SystemTime::now();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::new(started_at)));
        let masked: Vec<String> = urls.iter().map(|url| tenure::masked_url(url)).collect();
        let shared = Shared {
            shop: Shop::new(&mut registry, sale.as_ref(), broken_locks),
            limits: Limits::new(&settings.limits),
            desk: Desk::new(&mut registry, &locks),
            board: Board::new(settings.access.admin, settings.log.clone()),
            stats: Stats::new(),
            started_at,
            metrics: Metrics::new(registry),
            stop: CancellationToken::new(),
            place: masked.join(" "),
            store: StoreServer::new(&urls),
            ground: Ground::new(&urls),
            settings,
            locks,
            sale,
        };
        let state = AppState(Arc::new(shared));
        Self { state }
    }

    /// Everything that the service answers, below [`Settings::base_path`], to be merged into another
    /// router. [`run_background`](Self::run_background) has to run as well.
    ///
    /// Without a base path the router has a fallback of its own, and so does not merge with one that
    /// has one too. Limits by address need [`axum::extract::ConnectInfo`] with a
    /// [`SocketAddr`](std::net::SocketAddr).
    pub fn router(&self) -> Router {
        let inner = self.state.routes();
        match self.state.settings.base_path.as_str() {
            "" => inner,
            base => page::below(base, inner),
        }
    }

    /// Does the work that no request does: looks at the locks and sales for those who watch them,
    /// counts, brings orders into the ledger. Ends soon after [`stop`](Self::stop).
    pub async fn run_background(&self) {
        let state = &self.state;
        tokio::spawn(lock_board::run(state.clone()));
        tokio::spawn(stats::run(state.clone()));
        tokio::spawn(locks::sweep(state.clone()));
        let selling = sales::start(state);
        state.end_playground().await;
        selling.await;
    }

    /// Serves until [`stop`](Self::stop), and then lets what is under way end: router, background work
    /// and connections.
    pub async fn serve(&self, listener: TcpListener) {
        let connections_max = self.state.settings.limits.max_connections;
        let (router, stop) = (self.whole_router(), self.state.stop.clone());
        let serving = connections::serve(listener, router, connections_max, stop);
        tokio::join!(serving, self.run_background());
    }

    /// Has [`serve`](Self::serve), [`run_background`](Self::run_background) and everything that waits
    /// or streams end. Stopping again changes nothing.
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

impl AppState {
    /// Has the run that goes on when the service stops end in time, and take its keys away.
    async fn end_playground(&self) {
        self.stop.cancelled().await;
        let settling = self.ground.playground.settle();
        let _ = tokio::time::timeout(PLAYGROUND_WITHIN, settling).await;
    }

    /// Brings up to date what is not counted but looked at.
    pub(crate) fn refresh_metrics(&self) {
        let seen = self.board.seen().unwrap_or_default();
        let meters = &self.desk.meters;
        meters.refresh(&self.place, &seen, &self.locks.stats());
    }

    /// All routes, as they are without a base path.
    fn routes(&self) -> Router {
        let api = OpenApiRouter::new()
            .merge(locks::routes())
            .routes(routes!(events::follow))
            .routes(routes!(stats::show))
            .routes(routes!(about::show))
            .merge(sales::routes())
            .merge(playground::routes());
        let (documented, document) = OpenApiRouter::with_openapi(openapi::Description::openapi())
            .nest("/api/v1", api)
            .nest("/order/v1", sales::load_test_routes())
            .routes(routes!(health::alive))
            .routes(routes!(health::ready))
            .routes(routes!(metrics::show))
            .split_for_parts();
        documented
            .merge(openapi::routes(document, &self.settings.base_path))
            .merge(page::routes())
            .fallback(|| nothing_here(""))
            .layer(RequestLayer(self.clone()))
            .with_state(self.clone())
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// The answer at paths that do not exist.
fn nothing_here(base: &str) -> std::future::Ready<Problem> {
    let detail = format!("there is nothing at this path: see {base}/openapi.json");
    std::future::ready(Problem::new(Kind::NOT_FOUND, detail))
}
