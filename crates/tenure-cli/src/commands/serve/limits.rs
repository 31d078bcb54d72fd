//! The limits of the service, on the command line.

use std::time::Duration;

use tenure_serve::LimitSettings;
use tenure_view::time;

/// Limits of concurrent work.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Maximum size of a request body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
    max_body: usize,

    /// Maximum concurrent connections; more are refused, except for health checks
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    max_connections: usize,

    /// Maximum concurrent connections of one client address [default: three quarters of all]
    #[arg(long, value_name = "COUNT")]
    max_connections_per_address: Option<usize>,

    /// Maximum requests waiting for a lock or an order
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    max_waits: usize,

    /// How long one request may wait for a lock; to wait longer, retry with the ticket
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::parse)]
    max_wait: Duration,

    /// How long a ticket keeps its place in the queue between requests
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time::parse)]
    keep_place: Duration,

    /// Maximum open event streams
    #[arg(long, value_name = "COUNT", default_value_t = 2_000)]
    max_streams: usize,

    /// Requests per second and client address, with bursts of twice that [default: no limit]
    #[arg(long, value_name = "REQUESTS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
}

impl LimitArgs {
    pub fn settings(&self) -> LimitSettings {
        LimitSettings {
            max_body: self.max_body,
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            max_waits: self.max_waits,
            max_wait: self.max_wait,
            keep_place: self.keep_place,
            max_streams: self.max_streams,
            rate: self.rate,
        }
    }
}
