//! Operations counted, and those that took too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a call may take beyond its limit: ten processes on two busy cores, and answers that have to
/// travel. It is hangs that are looked for.
const SLACK: Duration = Duration::from_secs(2);
/// How often the machine is asked whether it lets us run.
const TICK: Duration = Duration::from_millis(5);

/// By then a stall that has ended is counted.
const STALL_COUNTED: Duration = Duration::from_millis(200);
/// Every sleep ends a little late; only what is longer excuses a call.
const STALL_MIN: Duration = Duration::from_millis(30);

macro_rules! kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// What a client does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($kind,)* }
        const NAMES: &[&str] = &[$($name,)*];
    };
}

kinds! {
    TryAcquire = "try_acquire",
    AcquireWithin = "acquire_within",
    Acquire = "acquire",
    Cancel = "acquire, cancelled",
    Reenter = "acquire, nested",
    Ensure = "ensure",
    Detach = "detach",
    Adopt = "adopt",
    Release = "release",
    Drop = "drop",
    Shutdown = "shutdown",
}

pub struct Tally {
    counts: Vec<AtomicU64>,
    /// For how long, in total, this process wanted to run and could not: paused or crowded out.
    stalled_ns: Arc<AtomicU64>,
    /// Locks that were handed off inside this process. No operation of its own.
    handed_off: AtomicU64,
}

/// A call that is being timed.
pub struct Timed<'a> {
    tally: &'a Tally,
    kind: Kind,
    start: Instant,
    stalled_before_ns: u64,
}

impl Tally {
    pub fn new() -> Self {
        let stalled_ns = Arc::new(AtomicU64::new(0));
        let stalled = Arc::clone(&stalled_ns);
        thread::spawn(move || {
            loop {
                let start = Instant::now();
                thread::sleep(TICK);
                let late = start.elapsed().saturating_sub(TICK);
                if late > STALL_MIN {
                    let late_ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
                    stalled.fetch_add(late_ns, Ordering::Relaxed);
                }
            }
        });
        Self {
            counts: NAMES.iter().map(|_| AtomicU64::new(0)).collect(),
            stalled_ns,
            handed_off: AtomicU64::new(0),
        }
    }

    pub fn note_handed_off(&self, so_far: u64) {
        self.handed_off.fetch_max(so_far, Ordering::Relaxed);
    }

    pub fn begin(&self, kind: Kind) -> Timed<'_> {
        Timed {
            tally: self,
            kind,
            start: Instant::now(),
            stalled_before_ns: self.stalled_ns.load(Ordering::Relaxed),
        }
    }

    pub fn count(&self, kind: Kind) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Prints the counts so far, for the test process to read.
    pub fn tell(&self) {
        let counts: Vec<String> = NAMES
            .iter()
            .zip(&self.counts)
            .map(|(name, count)| format!("{name}={}", count.load(Ordering::Relaxed)))
            .collect();
        println!("counts {}", counts.join(";"));
        println!("handed_off {}", self.handed_off.load(Ordering::Relaxed));
    }
}

impl Timed<'_> {
    /// The call has ended. Says so if it took longer than `limit`, time without a processor not
    /// counted.
    pub fn end(self, limit: Duration) {
        let took = self.start.elapsed();
        // A stall under way is counted when it ends: soon after, where there is room.
        let stalled_ns = self.tally.stalled_ns.load(Ordering::Relaxed) - self.stalled_before_ns;
        let ran = took.saturating_sub(Duration::from_nanos(stalled_ns));
        if ran > limit + SLACK {
            thread::sleep(STALL_COUNTED);
            let stalled_ns = self.tally.stalled_ns.load(Ordering::Relaxed) - self.stalled_before_ns;
            let ran = took.saturating_sub(Duration::from_nanos(stalled_ns));
            if ran > limit + SLACK {
                let name = NAMES[self.kind as usize];
                println!("overdue {name}: took {ran:.0?}, its limit was {limit:.0?}");
            }
        }
        self.tally.count(self.kind);
    }
}
