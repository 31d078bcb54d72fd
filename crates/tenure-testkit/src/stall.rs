//! Whether the machine stalled: got no time to run what was ready to run.
//!
//! Many tests are about leases of a second or less. If no process gets a core for that long, a lease
//! ends that the test expects to be renewed, and nothing is wrong but the machine. So such a failure
//! does not count. What must hold during a stall is checked by the fault runs, which pause processes
//! on purpose and never repeat anything.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use crate::mutex::lock;

/// How long a thread of this process sleeps to see how late it wakes.
const NAP: Duration = Duration::from_millis(20);
/// A quiet machine wakes a thread within a few milliseconds, and a busy one within 50.
const STALL: Duration = Duration::from_millis(100);
const ATTEMPTS: u32 = 5;

/// Runs a test, again if it failed while the machine stalled.
///
/// # Panics
///
/// As the test does, if the machine did not stall meanwhile, or for the fifth time.
pub fn despite_stalls<T>(test: impl Fn() -> T) -> T {
    LazyLock::force(&WATCH);
    repeat(test, longest_stall_since)
}

/// The longest stall that ended after this moment.
fn longest_stall_since(begun: Instant) -> Option<Duration> {
    // A stall that is not over is noticed when this returns.
    std::thread::sleep(NAP * 2);
    let stalls = lock(&STALLS);
    let since = stalls.iter().filter(|(ended, _)| *ended >= begun);
    since.map(|(_, length)| *length).max()
}

#[expect(clippy::print_stderr, reason = "a repeated test must say why")]
fn repeat<T>(test: impl Fn() -> T, stalled_since: impl Fn(Instant) -> Option<Duration>) -> T {
    for _ in 1..ATTEMPTS {
        let begun = Instant::now();
        let panic = match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(returned) => return returned,
            Err(panic) => panic,
        };
        match stalled_since(begun) {
            Some(stall) => eprintln!("the machine stalled for {stall:?}: once more"),
            None => resume_unwind(panic),
        }
    }
    test()
}

/// The stalls of this process, with the moments when they ended.
static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

static WATCH: LazyLock<()> = LazyLock::new(|| {
    std::thread::spawn(|| {
        loop {
            let begun = Instant::now();
            std::thread::sleep(NAP);
            let late = begun.elapsed().saturating_sub(NAP);
            if late >= STALL {
                lock(&STALLS).push((Instant::now(), late));
            }
        }
    });
});

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn failing_until(attempt: u32, attempts: &Cell<u32>) -> impl Fn() {
        move || {
            attempts.set(attempts.get() + 1);
            assert!(attempts.get() >= attempt, "attempt {}", attempts.get());
        }
    }

    #[test]
    fn a_failure_counts_if_the_machine_did_not_stall() {
        let attempts = Cell::new(0);
        let test = failing_until(2, &attempts);
        let result = catch_unwind(AssertUnwindSafe(|| repeat(test, |_| None)));
        assert!(result.is_err());
        assert_eq!(attempts.get(), 1);
    }

    #[test]
    fn a_failure_during_a_stall_is_repeated_but_not_for_ever() {
        let attempts = Cell::new(0);
        repeat(failing_until(3, &attempts), |_| Some(STALL));
        assert_eq!(attempts.get(), 3);
        let attempts = Cell::new(0);
        let test = failing_until(99, &attempts);
        let result = catch_unwind(AssertUnwindSafe(|| repeat(test, |_| Some(STALL))));
        assert!(result.is_err());
        assert_eq!(attempts.get(), ATTEMPTS);
    }

    #[test]
    fn only_stalls_since_the_beginning_count() {
        let before = Instant::now();
        lock(&STALLS).push((Instant::now(), Duration::from_secs(7)));
        assert!(longest_stall_since(before) >= Some(Duration::from_secs(7)));
        let longest = longest_stall_since(Instant::now());
        assert!(longest < Some(Duration::from_secs(7)));
    }
}
