//! The settings of the service.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::access::Token;
use crate::log::Log;

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may do what.
    pub access: Access,
    /// How much may be under way at once.
    pub limits: LimitSettings,
    /// Whether home-made locks can be tried, and the playground on a server.
    pub demo: bool,
    /// Whether this instance brings orders into the ledger.
    pub consumer: bool,
    /// Where the service listens, as its answers say it.
    pub address: SocketAddr,
    /// In front of every path, as in `/tenure`; empty for none.
    pub base_path: String,
    /// Where the orders are written, without secrets, as it is shown.
    pub ledger: Option<String>,
    /// Where to report what operators should know.
    pub log: Log,
}

/// Who may do what.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The secret that requests must bring, if any.
    pub token: Option<Token>,
    /// Names other than its own addresses that the service answers to where it has no token.
    pub host_names: Vec<String>,
    /// Whether requests may end leases of others and change items and stock.
    pub admin: bool,
    /// Whether to refuse every change.
    pub read_only: bool,
}

/// How much may be under way at once.
#[derive(Clone, Debug)]
pub struct LimitSettings {
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// How many connections are served at once; the next ones wait.
    pub max_connections: usize,
    /// How many requests may wait for a lock or an order at once.
    pub max_waits: usize,
    /// How long one request waits for a lock. To wait longer, a client comes back with a ticket.
    pub max_wait: Duration,
    /// How long the place in the queue is kept for a client that comes back.
    pub keep_place: Duration,
    /// How many event streams may be open at once.
    pub max_streams: usize,
    /// Requests a second for each address, with bursts of twice that; no limit without a number.
    pub rate: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            access: Access::default(),
            limits: LimitSettings::default(),
            demo: false,
            consumer: true,
            address: (Ipv4Addr::LOCALHOST, 8080).into(),
            base_path: String::new(),
            ledger: None,
            log: Log::default(),
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_body: 65_536,
            max_connections: 10_000,
            max_waits: 5_000,
            max_wait: Duration::from_secs(30),
            keep_place: Duration::from_secs(10),
            max_streams: 2_000,
            rate: None,
        }
    }
}
