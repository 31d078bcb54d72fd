//! The kit against real servers and processes: each fault is shown to take effect.
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

/// Long enough for a loaded machine; no test waits this long when all is well.
const SOON: Duration = Duration::from_secs(5);
/// Long enough to believe that nothing comes.
const A_WHILE: Duration = Duration::from_millis(150);
