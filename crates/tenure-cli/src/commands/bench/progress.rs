//! Progress of a phase, on stderr if it is a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the line is redrawn: often enough to be seen moving.
const REDRAW_MS: u64 = 100;

/// Counts operations, and shows the count now and then. Clones share the count.
#[derive(Clone, Debug)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    part: &'static str,
    /// What is counted.
    things: &'static str,
    length: Duration,
    begun: Instant,
    done: AtomicU64,
    /// When to show it next, in milliseconds after the start.
    next_ms: AtomicU64,
    is_terminal: bool,
}

impl Progress {
    pub fn new(part: &'static str, length: Duration) -> Self {
        Self::of("locks", part, length)
    }

    /// Counts something other than locks.
    pub fn of(things: &'static str, part: &'static str, length: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                part,
                things,
                length,
                begun: Instant::now(),
                done: AtomicU64::new(0),
                next_ms: AtomicU64::new(REDRAW_MS),
                is_terminal: io::stderr().is_terminal(),
            }),
        }
    }

    /// Counts one operation, and redraws if it is time.
    pub fn advance(&self) {
        let shared = &*self.shared;
        let done = shared.done.fetch_add(1, Ordering::Relaxed) + 1;
        if !shared.is_terminal {
            return;
        }
        let now_ms = u64::try_from(shared.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next_ms = shared.next_ms.load(Ordering::Relaxed);
        if now_ms < next_ms {
            return;
        }
        let order = Ordering::Relaxed;
        let (next, later_ms) = (&shared.next_ms, now_ms + REDRAW_MS);
        if next
            .compare_exchange(next_ms, later_ms, order, order)
            .is_ok()
        {
            let line = line(shared, done, shared.begun.elapsed());
            draw(&format!("\r\x1b[2K{line}"));
        }
    }
}

/// The line is erased when the phase is over: the result says more.
impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_terminal {
            draw("\r\x1b[2K");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
fn line(shared: &Shared, done: u64, time: Duration) -> String {
    let Shared { part, things, .. } = shared;
    let (time, length) = (time.as_secs_f64(), shared.length.as_secs_f64());
    let rate = done as f64 / time.max(1e-9);
    format!("{part:<11}  {time:.1} of {length:.1} s  {done} {things}, {rate:.0}/s")
}

fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Errors are ignored: the terminal is gone.
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_the_part_the_time_and_the_rate() {
        let progress = Progress::new("contended", Duration::from_secs(3));
        let line = line(&progress.shared, 500, Duration::from_secs(2));
        assert_eq!(line, "contended    2.0 of 3.0 s  500 locks, 250/s");
    }
}
