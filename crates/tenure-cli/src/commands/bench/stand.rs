//! Connections and names, prepared before the measurement.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure::Locks;
use tenure::redis::Client;
use tenure_view::scratch_names;
use tokio::task::JoinSet;

use super::BenchArgs;
use super::commands;
use crate::server::Server;

const TTL_DEFAULT: Duration = Duration::from_secs(30);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Connected clients, and unused names.
pub struct Stand {
    /// One for each client, as separate processes would have.
    pub clients: Vec<Locks>,
    /// For each client a connection without locks, to the first server.
    pub bare: Vec<Client>,
    /// Every server, to count its commands.
    pub servers: Vec<Client>,
    /// One for each task of each client.
    pub own_names: Vec<String>,
    /// The names of the contended phase.
    pub shared_names: Vec<String>,
    /// How long leases last without renewal.
    pub ttl: Duration,
    /// Connections of other clients at the start, if known.
    pub others: Option<u64>,
    /// Clients that together reach all keys of these names.
    ways: Vec<Client>,
}

impl Stand {
    pub async fn build(server: &Server, args: &BenchArgs) -> Result<Self> {
        let mut ways = Vec::new();
        for url in server.urls() {
            let client = Client::connect(url).await;
            ways.push(client.with_context(|| format!("cannot measure `{}`", server.place()))?);
        }
        let servers: Vec<Client> = ways.iter().flat_map(Client::masters).collect();
        let others = commands::connected(&servers).await?;
        let (mut clients, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..args.clients {
            clients.push(server.connect().await?);
            bare.push(Client::connect(&server.urls()[0]).await?);
        }
        let names = |count: u32| {
            (0..count)
                .map(|_| scratch_names::unused("tenure-bench"))
                .collect()
        };
        Ok(Self {
            clients,
            bare,
            servers,
            own_names: names(args.clients * args.tasks),
            shared_names: names(args.locks),
            ttl: args.ttl.or(server.ttl()?).unwrap_or(TTL_DEFAULT),
            others: others.map(|all| all.saturating_sub(ways.len() as u64)),
            ways,
        })
    }

    /// The names of one client's tasks.
    pub fn names_of(&self, client: usize) -> &[String] {
        let tasks = self.own_names.len() / self.clients.len();
        &self.own_names[client * tasks..][..tasks]
    }

    /// Shuts down the clients and deletes all keys.
    pub async fn tidy_up(&self) {
        let mut closing = JoinSet::new();
        for client in self.clients.clone() {
            closing.spawn(async move { client.shutdown(SHUTDOWN_LIMIT).await });
        }
        closing.join_all().await;
        for way in &self.ways {
            scratch_names::sweep(way, &self.own_names).await;
            scratch_names::sweep(way, &self.shared_names).await;
        }
    }
}
