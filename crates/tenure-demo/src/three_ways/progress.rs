//! The progress of a sale on stderr: a bar on a terminal, an occasional line elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_view::output;

const BAR_CELLS: u64 = 30;
/// How often the bar is redrawn: often enough to look smooth.
const REDRAW: Duration = Duration::from_millis(50);
/// How often a plain line is printed: rarely enough for a log.
const LINE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Progress {
    total: u64,
    done: AtomicU64,
    begun: Instant,
    /// When to show it next, in milliseconds since the start.
    next_ms: AtomicU64,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            total,
            done: AtomicU64::new(0),
            begun: Instant::now(),
            next_ms: AtomicU64::new(pace(is_terminal)),
            is_terminal,
        }
    }

    /// Counts one more, and redraws if it is time.
    pub(crate) fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        if now_ms < next_ms {
            return;
        }
        let later_ms = now_ms + pace(self.is_terminal);
        let order = Ordering::Relaxed;
        let won = self
            .next_ms
            .compare_exchange(next_ms, later_ms, order, order);
        if won.is_ok() {
            self.show(done);
        }
    }

    /// Removes the bar: the result replaces it.
    pub(crate) fn finish(&self) {
        if self.is_terminal {
            draw("\r\x1b[2K");
        }
    }

    fn show(&self, done: u64) {
        let line = progress_line(done, self.total, self.begun.elapsed());
        if self.is_terminal {
            draw(&format!("\r\x1b[2K{line}"));
        } else {
            output::complain(line);
        }
    }
}

/// An interrupted sale leaves no half-drawn bar behind.
impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn pace(is_terminal: bool) -> u64 {
    let pace = if is_terminal { REDRAW } else { LINE };
    u64::try_from(pace.as_millis()).unwrap_or(u64::MAX)
}

fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Errors are ignored: the terminal is gone.
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

#[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
fn progress_line(done: u64, total: u64, time: Duration) -> String {
    let full = done.min(total) * BAR_CELLS / total.max(1);
    let bar: String = (0..BAR_CELLS)
        .map(|cell| if cell < full { '#' } else { '.' })
        .collect();
    let rate = done as f64 / time.as_secs_f64().max(1e-9);
    format!("   [{bar}] {done} of {total} orders, {rate:.0}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_with_progress() {
        let line = progress_line(500, 1_000, Duration::from_secs(2));
        assert_eq!(
            line,
            "   [###############...............] 500 of 1000 orders, 250/s"
        );
        let line = progress_line(7, 7, Duration::from_secs(1));
        assert!(line.contains("[##############################] 7 of 7"));
    }
}
