//! The service: locks and sales over HTTP, and a page that shows them.

mod about;
mod access;
mod answers;
mod board;
mod connections;
mod events;
mod extract;
mod health;
mod limits;
mod locks;
mod metrics;
mod openapi;
mod page;
mod playground;
mod problem;
mod process;
mod reception;
mod sales;
mod stats;
mod stream;

use std::net::SocketAddr;
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

pub use self::about::Behind;
pub use self::access::{Access, Token};
use self::board::Board;
use self::connections::Peer;
pub use self::limits::LimitArgs;
use self::limits::Limits;
use self::locks::Desk;
use self::metrics::Metrics;
use self::playground::Ground;
use self::problem::{Kind, Problem};
use self::process::Process;
use self::reception::Reception;
use self::sales::Shop;
use self::stats::Stats;

/// How long a run of the playground may take to end when the service does.
const PLAYGROUND_WITHIN: Duration = Duration::from_millis(1_500);

/// What the command line decides.
#[derive(Clone, Debug)]
pub struct Settings {
    pub access: Access,
    pub limits: LimitArgs,
    /// Whether the notes' broken locks can be tried, and the playground.
    pub demo: bool,
    /// Whether this instance brings orders into the ledger.
    pub consumer: bool,
    /// Where the service listens.
    pub address: SocketAddr,
    /// In front of every path, as in `/locks`; empty for none.
    pub base_path: String,
    /// Where locks and orders are, without secrets.
    pub places: Places,
    /// The server behind the locks, to be asked about itself.
    pub behind: Behind,
}

/// Where locks and orders are, as it may be shown.
#[derive(Clone, Debug)]
pub struct Places {
    pub locks: String,
    pub ledger: Option<String>,
}

/// What the service is made of.
pub struct Parts {
    pub locks: Locks,
    /// None where the service has no ledger.
    pub sale: Option<Sale>,
    /// The home-made locks, in demo mode.
    pub broken_locks: Option<BrokenLocks>,
    /// Where the locks are, with passwords: not to be shown.
    pub urls: Vec<String>,
}

/// What all requests share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

/// What an [`App`] holds.
pub struct Shared {
    pub settings: Settings,
    pub locks: Locks,
    /// None where the service has no ledger.
    pub sale: Option<Sale>,
    pub shop: Shop,
    pub ground: Ground,
    pub limits: Limits,
    pub metrics: Metrics,
    pub desk: Desk,
    pub board: Arc<Board>,
    pub stats: Stats,
    pub started_at: SystemTime,
    /// Cancelled when the service stops: everything that waits or streams ends then.
    pub stop: CancellationToken,
}

impl App {
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let Parts {
            locks,
            sale,
            broken_locks,
            urls,
        } = parts;
        let started_at = SystemTime::now();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::new(started_at)));
        Self(Arc::new(Shared {
            shop: Shop::new(&mut registry, sale.as_ref(), broken_locks),
            limits: Limits::new(&settings.limits),
            desk: Desk::new(&mut registry, &locks),
            board: Board::new(settings.access.admin),
            stats: Stats::new(),
            started_at,
            metrics: Metrics::new(registry),
            stop: CancellationToken::new(),
            settings,
            locks,
            sale,
            ground: Ground::new(&urls),
        }))
    }

    /// Serves until [`stop`](Shared::stop) is cancelled, and then lets what is under way end.
    pub async fn serve(&self, listener: TcpListener) {
        let connections_max = self.settings.limits.max_connections;
        let router = self.router();
        tokio::spawn(board::run(self.clone()));
        tokio::spawn(stats::run(self.clone()));
        tokio::spawn(locks::sweep(self.clone()));
        let selling = sales::start(self);
        let serving = connections::serve(listener, router, connections_max, self.stop.clone());
        tokio::join!(serving, self.end_playground());
        selling.await;
    }

    /// Has the run that goes on when the service stops end in time, and take its keys away.
    async fn end_playground(&self) {
        self.stop.cancelled().await;
        let _ = tokio::time::timeout(PLAYGROUND_WITHIN, self.ground.playground.settle()).await;
    }

    /// Brings up to date what is not counted but looked at.
    fn refresh_metrics(&self) {
        let seen = self.board.seen().unwrap_or_default();
        let node = &self.settings.places.locks;
        self.desk.meters.refresh(node, &seen, &self.locks.stats());
    }

    fn router(&self) -> Router {
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
        let inner = documented
            .merge(openapi::routes(document, &self.settings.base_path))
            .merge(page::routes())
            .fallback(|| nothing_here(""))
            .layer(Reception(self.clone()))
            .with_state(self.clone());
        match self.settings.base_path.as_str() {
            "" => inner,
            base => {
                let base = base.to_owned();
                let outside = Router::new().fallback(move || nothing_here(&base));
                let outside = outside.layer(Reception(self.clone()));
                page::below(&self.settings.base_path, inner).fallback_service(outside)
            }
        }
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// What is told at paths that are none.
fn nothing_here(base: &str) -> std::future::Ready<Problem> {
    let detail = format!("there is nothing at this path: see {base}/openapi.json");
    std::future::ready(Problem::new(Kind::NOT_FOUND, detail))
}
