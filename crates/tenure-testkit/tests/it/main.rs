//! Runs the kit against real servers and processes: each fault takes effect.
#![expect(clippy::unwrap_used, reason = "these are tests throughout")]

mod architecture;
mod clock_shim;
mod cluster;
mod history;
mod pair;
mod process;
mod proxy;
mod redlock_nodes;
mod resp;
mod sale;
mod sentinels;
mod server;

use std::time::Duration;

/// Long enough for a busy machine; a passing test never waits this long.
const SOON: Duration = Duration::from_secs(5);
/// Long enough to conclude that nothing comes.
const A_WHILE: Duration = Duration::from_millis(150);
