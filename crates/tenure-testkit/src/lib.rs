//! The test kit of Tenure.
#![expect(
    clippy::expect_used,
    reason = "a kit that cannot do its work must fail the test with a clear message"
)]

mod clock_shim;
mod proxy;
mod resp;
mod server;
mod spawn;
mod tls;
mod wait;

use std::time::Duration;

pub use clock_shim::ClockShim;
pub use proxy::{Counts, Proxy};
pub use resp::{Message, Reply, RespClient};
pub use server::{BusyScript, ClientKind, Fsync, RedisServer, ServerBuilder};
pub use tls::TlsFiles;
pub use wait::eventually;

/// How long a process may take to follow `SIGSTOP` or `SIGCONT`.
const SIGNAL_LIMIT: Duration = Duration::from_secs(2);
/// How long a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(5);
