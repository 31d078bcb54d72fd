//! The server behind the locks, for `INFO`.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tenure::redis::{Client, Command};
use tokio::sync::OnceCell;
use utoipa::ToSchema;

/// The server behind the locks, for `INFO`.
#[derive(Clone, Default)]
pub(crate) struct StoreServer {
    /// With its password: never shown. `None` for locks in this process.
    url: Option<String>,
    client: Arc<OnceCell<Client>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Store {
    version: String,
    role: String,
    /// In bytes.
    used_memory: Option<u64>,
    clients: Option<u64>,
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

    /// The facts from `INFO`; `None` if the server does not respond.
    pub(crate) async fn ask(&self) -> Option<Store> {
        let url = self.url.as_ref()?;
        let client = self.client.get_or_try_init(|| Client::connect(url)).await;
        let info = client.ok()?.run(Command::new("INFO")).await.ok()?;
        let info = info.as_str()?;
        let said = |field: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
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
