//! The state that all requests share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::registry::Registry;
use tenure::Locks;
use tenure_sale::Sale;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::http_metrics::HttpMetrics;
use crate::limits::Limits;
use crate::lock_board::board::Board;
use crate::locks::desk::Desk;
use crate::parts::Parts;
use crate::playground::ground::Ground;
use crate::process_metrics::Process;
use crate::sales::shop::Shop;
use crate::settings::Settings;
use crate::stats::time_series::TimeSeries;
use crate::store_server::StoreServer;

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Shared>);

/// What an [`AppState`] holds.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) locks: Locks,
    /// Where the locks are, without passwords.
    pub(crate) place: String,
    pub(crate) store: StoreServer,
    /// `None` if the service has no ledger.
    pub(crate) sale: Option<Sale>,
    pub(crate) shop: Arc<Shop>,
    pub(crate) ground: Ground,
    pub(crate) limits: Limits,
    pub(crate) metrics: HttpMetrics,
    pub(crate) background: Arc<Background>,
    pub(crate) desk: Desk,
    pub(crate) board: Arc<Board>,
    pub(crate) stats: TimeSeries,
    /// All metrics, including those of the areas.
    pub(crate) registry: Registry,
    pub(crate) started_at: SystemTime,
    /// Cancelled when the service stops, to end waiting requests and streams.
    pub(crate) stop: CancellationToken,
}

impl AppState {
    pub(crate) fn new(settings: Settings, parts: Parts) -> Self {
        let Parts {
            locks,
            urls,
            sale,
            broken_locks,
        } = parts;
        let started_at = SystemTime::now();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::new(started_at)));
        let stop = CancellationToken::new();
        let masked: Vec<String> = urls.iter().map(|url| tenure::masked_url(url)).collect();
        let shared = Shared {
            // Metrics are shown in the order in which they are registered here.
            shop: Shop::new(&mut registry, sale.as_ref(), broken_locks),
            desk: Desk::new(&mut registry, &locks),
            metrics: HttpMetrics::new(&mut registry),
            background: Background::new(&mut registry, settings.log.clone(), stop.clone()),
            registry,
            limits: Limits::new(&settings.limits),
            board: Board::new(settings.access.admin, settings.log.clone()),
            stats: TimeSeries::new(),
            started_at,
            stop,
            place: masked.join(" "),
            store: StoreServer::new(&urls),
            ground: Ground::new(&urls),
            settings,
            locks,
            sale,
        };
        Self(Arc::new(shared))
    }

    /// Runs this work until the service stops, again after each failure.
    pub(crate) fn in_background<W>(
        &self,
        task: &'static str,
        work: impl Fn(Self) -> W + Send + 'static,
    ) -> JoinHandle<()>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let app = self.clone();
        self.background.run(task, move || work(app.clone()))
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
