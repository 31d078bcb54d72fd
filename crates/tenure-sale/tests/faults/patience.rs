//! How long to wait on a machine that has other things to do.

use std::time::Duration;

/// A limit for a machine on which hardly any process waits for a core, multiplied by how many wait for
/// each core of this one.
pub fn stretched(limit: Duration) -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(1);
    // The run itself keeps a few busy.
    limit.mul_f64((load() / f64::from(2 * cores)).max(1.0))
}

/// Processes that ran or waited for a core in the last minute, on average; none where nobody says.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|load| load.parse().ok());
    first.unwrap_or_default()
}
