//! What clients did, as they saw it themselves, on one clock.
//!
//! Each client process writes its events to a file of its own with a [`Recorder`]; the test writes
//! what it broke with a [`Nemesis`]; [`History::load`] reads all of it back. All times are
//! nanoseconds of the host's `CLOCK_MONOTONIC` ([`now_ns`]), which is the same for all processes
//! and which neither `SIGSTOP` nor a [`ClockShim`](crate::ClockShim) changes.

pub(crate) mod line;
pub(crate) mod nemesis;
mod recorder;

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

pub(crate) use line::Millis;
pub use nemesis::{Fault, FaultUnderWay, Nemesis};
pub use recorder::{Pending, Recorder};

/// Everything that happened in one run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// What the clients did, ordered by the time of the call.
    pub events: Vec<Event>,
    /// What was broken meanwhile, ordered by its start.
    pub faults: Vec<Fault>,
}

/// One thing that a client did, from the call to the return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The process. A process that replaces a killed one needs a number of its own.
    pub client: u64,
    /// The task or thread in that process.
    pub task: u64,
    /// What was asked for.
    pub op: Op,
    /// In which way the lock is held.
    pub mode: Mode,
    /// The lock's name.
    pub lock: String,
    /// One guard's life, from its grant to its end; together with `client` it is unique. Zero if
    /// the event belongs to none. It is not the store's lease, which may pass from guard to guard.
    pub hold: u64,
    /// Just before the call.
    pub call_ns: u64,
    /// Just after the return.
    pub return_ns: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// The guard's fence.
    pub fence: Option<u64>,
    /// Until when the holder believed, at that time, to hold the lock.
    pub believed_until_ns: Option<u64>,
}

line::words! {
    /// What a client asked for.
    pub enum Op {
        /// A new hold.
        Acquire = "acquire",
        /// The same hold once more, by its owner.
        Reenter = "reenter",
        /// The end of a [`Op::Reenter`]; the hold goes on.
        Leave = "leave",
        /// A longer life of the hold.
        Renew = "renew",
        /// The hold's end is about to be asked for. Written before the request leaves, so that a
        /// client killed in the middle is not thought to hold on.
        Releasing = "releasing",
        /// The hold's end.
        Release = "release",
        /// The client has noticed that it no longer holds the lock.
        Lost = "lost",
    }
}

line::words! {
    /// What came of it.
    #[derive(Hash)]
    pub enum Outcome {
        /// It was given: the lock, the renewal.
        Granted = "granted",
        /// Somebody else holds the lock.
        Busy = "busy",
        /// It was certainly not done.
        Failed = "failed",
        /// Nobody knows whether it was done.
        Unknown = "unknown",
        /// The caller did not wait for the end.
        Cancelled = "cancelled",
        /// The lock was held and is free now.
        Released = "released",
        /// The lock was not held any more.
        Lost = "lost",
        /// There is nothing more to say.
        Done = "done",
    }
}

line::words! {
    /// In which way a lock is held.
    pub enum Mode {
        /// By nobody else.
        Exclusive = "exclusive",
        /// Together with others that share.
        Shared = "shared",
        /// As one of several permits.
        Permit = "permit",
    }
}

impl History {
    /// Reads all files that recorders and a nemesis have written into `dir`. An unfinished last
    /// line, left by a killed writer, is ignored.
    pub fn load(dir: &Path) -> Self {
        let mut history = Self::default();
        let files = fs::read_dir(dir)
            .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", dir.display()));
        for file in files {
            let path = file.expect("a directory can be read to its end").path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(recorder::EXTENSION) => history.events.extend(line::load(&path)),
                Some(nemesis::EXTENSION) => history.faults.extend(line::load(&path)),
                _ => {}
            }
        }
        history.sort();
        history
    }

    /// A history made by hand.
    pub fn new(events: Vec<Event>, faults: Vec<Fault>) -> Self {
        let mut history = Self { events, faults };
        history.sort();
        history
    }

    /// The number of events with this operation and outcome.
    pub fn count(&self, op: Op, outcome: Outcome) -> usize {
        let matching = |event: &&Event| event.op == op && event.outcome == outcome;
        self.events.iter().filter(matching).count()
    }

    /// The number of faults that took effect.
    pub fn effective_faults(&self) -> usize {
        let effective = |fault: &&Fault| fault.took_effect;
        self.faults.iter().filter(effective).count()
    }

    fn sort(&mut self) {
        self.events
            .sort_by_key(|event| (event.call_ns, event.return_ns));
        self.faults.sort_by_key(|fault| fault.start_ns);
    }
}

/// Now, on the clock of all histories.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has a monotonic clock");
    whole_ns(now.into())
}

/// The moment that `remaining` ends, for [`Pending::believed_until`].
///
/// The clock is read first: should the process be stopped in between, the moment comes out too
/// early, which can hide nothing but the pause itself, and never too late.
pub fn until_ns(remaining: impl FnOnce() -> Duration) -> u64 {
    let now_ns = now_ns();
    now_ns.saturating_add(whole_ns(remaining()))
}

/// The duration in nanoseconds; centuries are for ever.
pub(crate) fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Event {
    /// One line, times in milliseconds of the monotonic clock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {} task {}: {} `{}` ({}) at {}..{} ms -> {}",
            self.client,
            self.task,
            self.op,
            self.lock,
            self.mode,
            Millis(self.call_ns),
            Millis(self.return_ns),
            self.outcome
        )?;
        if self.hold != 0 {
            write!(f, ", hold {}", self.hold)?;
        }
        if let Some(fence) = self.fence {
            write!(f, ", fence {fence}")?;
        }
        if let Some(until_ns) = self.believed_until_ns {
            write!(f, ", believed until {} ms", Millis(until_ns))?;
        }
        Ok(())
    }
}
