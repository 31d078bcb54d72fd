//! Progress on standard error: standard output has the table and nothing else.

use std::sync::LazyLock;
use std::time::Instant;

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Says what happens now, and how long the run takes already.
pub fn tell(what: &str) {
    eprintln!("[{:>3} s] {what}", BEGUN.elapsed().as_secs());
}
