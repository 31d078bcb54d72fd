//! Whether the machine stalled: did not run what was ready to run.
//!
//! Many tests are about leases of a second or less. If no process gets a core for that long, a lease
//! ends that the test expects to be renewed, and nothing is wrong but the machine. So such a failure
//! does not count. What must hold during a stall is checked by the fault runs, which pause processes
//! on purpose and never repeat anything.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use crate::mutex::lock;

/// How long a thread of this process sleeps to see how late it wakes.
const NAP: Duration = Duration::from_millis(20);
/// A quiet machine wakes a thread within a few milliseconds, and a busy one within 50.
const LATE: Duration = Duration::from_millis(100);
/// A thread that slept is woken soon, but one that works on gets its next turn only after all others:
/// behind seven others it needs eight times as long.
const CROWD: usize = 8;
/// How many times in a row the threads that are ready to run are counted: those of 200 ms.
const COUNTS: usize = 10;
const ATTEMPTS: u32 = 5;
/// Set it to `1` where a test must show its first outcome, as where a bug was planted.
const ATTEMPTS_VARIABLE: &str = "TENURE_TEST_ATTEMPTS";

/// How the machine stalled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stall {
    /// A thread was woken so much too late.
    Late(Duration),
    /// So many threads were ready to run for each core.
    Crowd(usize),
}

/// Runs a test, again if it failed while the machine stalled.
///
/// # Panics
///
/// As the test does, if the machine did not stall meanwhile, or for the fifth time; for the first time
/// already if the environment has `TENURE_TEST_ATTEMPTS=1`.
pub fn despite_stalls<T>(test: impl Fn() -> T) -> T {
    let attempts = std::env::var(ATTEMPTS_VARIABLE).ok();
    let attempts = attempts.and_then(|it| it.parse().ok()).unwrap_or(ATTEMPTS);
    LazyLock::force(&WATCH);
    repeat(attempts, test, last_stall_since)
}

/// The last stall that ended after this moment.
fn last_stall_since(begun: Instant) -> Option<Stall> {
    // A stall that is not over is noticed when this returns.
    std::thread::sleep(NAP * 2);
    let last = *lock(&LAST);
    last.filter(|(ended, _)| *ended >= begun)
        .map(|(_, stall)| stall)
}

#[expect(clippy::print_stderr, reason = "a repeated test must say why")]
fn repeat<T>(
    attempts: u32,
    test: impl Fn() -> T,
    stalled_since: impl Fn(Instant) -> Option<Stall>,
) -> T {
    for _ in 1..attempts {
        let begun = Instant::now();
        let panic = match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(returned) => return returned,
            Err(panic) => panic,
        };
        match stalled_since(begun) {
            Some(stall) => eprintln!("{stall}: once more"),
            None => resume_unwind(panic),
        }
    }
    test()
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(late) => write!(f, "the machine stalled for {late:?}"),
            Self::Crowd(threads) => {
                write!(f, "{threads} threads were ready to run for each core")
            }
        }
    }
}

/// The last stall of the machine, with the moment when it ended.
static LAST: Mutex<Option<(Instant, Stall)>> = Mutex::new(None);

static WATCH: LazyLock<()> = LazyLock::new(|| {
    std::thread::spawn(|| {
        let mut counts = VecDeque::from([0; COUNTS]);
        loop {
            let begun = Instant::now();
            std::thread::sleep(NAP);
            let late = begun.elapsed().saturating_sub(NAP);
            counts.pop_front();
            counts.push_back(ready_per_core());
            let crowd = counts.iter().sum::<usize>() / COUNTS;
            let stall = match (late >= LATE, crowd >= CROWD) {
                (true, _) => Stall::Late(late),
                (false, true) => Stall::Crowd(crowd),
                (false, false) => continue,
            };
            *lock(&LAST) = Some((Instant::now(), stall));
        }
    });
});

/// How many threads of the machine run or are ready to run, for each core; zero if the system does not
/// say so.
fn ready_per_core() -> usize {
    let Ok(stat) = std::fs::read_to_string("/proc/stat") else {
        return 0;
    };
    let ready = stat
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "));
    let ready: usize = ready.and_then(|it| it.parse().ok()).unwrap_or(0);
    ready / std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::eventually;

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
        let result = catch_unwind(AssertUnwindSafe(|| repeat(ATTEMPTS, test, |_| None)));
        assert!(result.is_err());
        assert_eq!(attempts.get(), 1);
    }

    #[test]
    fn a_failure_during_a_stall_is_repeated_but_not_for_ever() {
        let attempts = Cell::new(0);
        repeat(ATTEMPTS, failing_until(3, &attempts), |_| {
            Some(Stall::Late(LATE))
        });
        assert_eq!(attempts.get(), 3);
        let attempts = Cell::new(0);
        let test = failing_until(99, &attempts);
        let result = catch_unwind(AssertUnwindSafe(|| {
            repeat(ATTEMPTS, test, |_| Some(Stall::Late(LATE)));
        }));
        assert!(result.is_err());
        assert_eq!(attempts.get(), ATTEMPTS);
        let attempts = Cell::new(0);
        let test = failing_until(2, &attempts);
        let stalled = |_| Some(Stall::Late(LATE));
        let result = catch_unwind(AssertUnwindSafe(|| repeat(1, test, stalled)));
        assert!(result.is_err(), "one attempt is one");
    }

    #[test]
    fn only_stalls_since_the_beginning_count() {
        let before = Instant::now();
        *lock(&LAST) = Some((Instant::now(), Stall::Crowd(99)));
        assert!(last_stall_since(before).is_some());
        let now = Instant::now();
        *lock(&LAST) = Some((before, Stall::Crowd(99)));
        assert_ne!(last_stall_since(now), Some(Stall::Crowd(99)));
    }

    /// No other test of this binary fills the machine so.
    #[test]
    fn more_threads_than_cores_can_run_are_a_stall() {
        LazyLock::force(&WATCH);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let begun = Instant::now();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..cores * (CROWD + 2) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let stalled = eventually(Duration::from_secs(30), || {
                last_stall_since(begun).is_some()
            });
            stop.store(true, Ordering::Relaxed);
            assert!(stalled, "{} ready for each core", ready_per_core());
        });
    }
}
