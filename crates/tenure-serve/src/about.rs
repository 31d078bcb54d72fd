//! `GET /about`: what runs here, and on what.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tenure::redis::{Client, Command};
use tenure_view::time::{millis, moment};
use tokio::sync::OnceCell;
use utoipa::ToSchema;

use crate::app::AppState;

/// How long the server may take to tell about itself.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The server behind the locks, to be asked about itself.
#[derive(Clone, Default)]
pub(crate) struct StoreServer {
    /// With its password: not to be shown. None for locks in this process.
    url: Option<String>,
    client: Arc<OnceCell<Client>>,
}

/// What runs here.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, for programs to read"
)]
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct About {
    version: &'static str,
    instance: Instance,
    /// Where the locks are.
    locks: String,
    /// Where the orders are, if there are sales.
    ledger: Option<String>,
    /// Whether leases of others can be ended here.
    admin: bool,
    read_only: bool,
    demo: bool,
    /// Whether requests need a token.
    token: bool,
    sales: bool,
    limits: Limits,
    /// What the server says of itself; null if it does not, or the locks are in this process.
    store: Option<Store>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Instance {
    host: String,
    pid: u32,
    port: u16,
    started_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Limits {
    max_body: usize,
    max_connections: usize,
    max_waits: usize,
    max_streams: usize,
    rate: Option<u32>,
    /// How long one request waits for a lock, and how long its place is kept then.
    max_wait_ms: u64,
    keep_place_ms: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct Store {
    version: String,
    role: String,
    /// In bytes.
    used_memory: Option<u64>,
    clients: Option<u64>,
}

/// What runs here, and on what.
#[utoipa::path(get, path = "/about", tag = "operations",
    responses((status = 200, description = "What runs here", body = About)))]
pub(crate) async fn show(State(app): State<AppState>) -> Json<About> {
    let settings = &app.settings;
    let (access, limits) = (&settings.access, &settings.limits);
    let store = tokio::time::timeout(TOLD_WITHIN, app.store.ask()).await;
    Json(About {
        version: env!("CARGO_PKG_VERSION"),
        instance: Instance {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            pid: std::process::id(),
            port: settings.address.port(),
            started_at: moment(app.started_at),
        },
        locks: app.place.clone(),
        ledger: settings.ledger.clone(),
        admin: access.admin,
        read_only: access.read_only,
        demo: settings.demo,
        token: access.token.is_some(),
        sales: app.sale.is_some(),
        limits: Limits {
            max_body: limits.max_body,
            max_connections: limits.max_connections,
            max_waits: limits.max_waits,
            max_streams: limits.max_streams,
            rate: limits.rate,
            max_wait_ms: millis(limits.max_wait),
            keep_place_ms: millis(limits.keep_place),
        },
        store: store.ok().flatten(),
    })
}

impl StoreServer {
    /// The first of several servers.
    pub(crate) fn new(urls: &[String]) -> Self {
        let url = urls.first().filter(|url| !url.starts_with("memory:"));
        Self {
            url: url.cloned(),
            client: Arc::default(),
        }
    }

    async fn ask(&self) -> Option<Store> {
        let url = self.url.as_ref()?;
        let client = self.client.get_or_try_init(|| Client::connect(url)).await;
        let told = client.ok()?.run(Command::new("INFO")).await.ok()?;
        let told = told.as_str()?;
        let said = |field: &str| {
            let mut lines = told.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(name, _)| *name == field)
                .map(|(_, value)| value)
        };
        let number = |field: &str| said(field)?.parse().ok();
        Some(Store {
            version: said("redis_version").unwrap_or_default().to_owned(),
            role: said("role").unwrap_or_default().to_owned(),
            used_memory: number("used_memory"),
            clients: number("connected_clients"),
        })
    }
}

impl fmt::Debug for StoreServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreServer(***)")
    }
}
