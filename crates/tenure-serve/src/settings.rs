//! The settings of the service.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tenure_sale::ConsumerOptions;

use crate::log::Log;
use crate::token::Token;

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may do what.
    pub access: Access,
    /// Limits of concurrent work.
    pub limits: LimitSettings,
    /// Whether home-made locks and, on a server, the playground are served.
    pub demo: bool,
    /// How this instance writes orders to the ledger; `None` if it does not.
    pub consumer: Option<ConsumerOptions>,
    /// The address that responses name.
    pub address: SocketAddr,
    /// Prefix of every path, as in `/tenure`; empty for none.
    pub base_path: String,
    /// The ledger as it is shown, without secrets.
    pub ledger: Option<String>,
    /// Where to report what operators should know.
    pub log: Log,
}

/// Who may do what.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The secret that requests must send, if any.
    pub token: Option<Token>,
    /// Host names, besides its own addresses, that the service accepts without a token.
    pub host_names: Vec<String>,
    /// Whether requests may end leases of other clients and change items and stock.
    pub admin: bool,
    /// Whether to refuse every change.
    pub read_only: bool,
}

/// Limits of concurrent work.
#[derive(Clone, Debug)]
pub struct LimitSettings {
    /// Maximum size of a request body, in bytes.
    pub max_body: usize,
    /// Maximum concurrent connections; more are refused, except to ask for the health of the service.
    pub max_connections: usize,
    /// The same for one address; `None` for three quarters of all.
    pub max_connections_per_address: Option<usize>,
    /// Maximum requests waiting for a lock or an order.
    pub max_waits: usize,
    /// How long one request waits for a lock. To wait longer, a client retries with a ticket.
    pub max_wait: Duration,
    /// How long the place in the queue is kept between two requests.
    pub keep_place: Duration,
    /// Maximum open event streams.
    pub max_streams: usize,
    /// Requests per second and address, with bursts of twice that; `None` for no limit.
    pub rate: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            access: Access::default(),
            limits: LimitSettings::default(),
            demo: false,
            consumer: Some(ConsumerOptions::default()),
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
            max_connections_per_address: None,
            max_waits: 5_000,
            max_wait: Duration::from_secs(30),
            keep_place: Duration::from_secs(10),
            max_streams: 2_000,
            rate: None,
        }
    }
}
