//! The operations of clients, as each client saw them, on one clock.
//!
//! Each client process writes its events to its own file with a [`Recorder`]; the test records its
//! faults with a [`Nemesis`]; [`History::load`] reads everything back. All times are nanoseconds of the
//! host's `CLOCK_MONOTONIC` ([`now_ns`]), which is the same for all processes and which neither
//! `SIGSTOP` nor a [`ClockShim`](crate::ClockShim) changes.

pub(crate) mod line;
pub(crate) mod nemesis;
mod recorder;

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

pub(crate) use line::Millis;
pub use nemesis::{ActiveFault, Fault, Nemesis};
pub use recorder::{Pending, Recorder};

/// All events and faults of one run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The operations of the clients, ordered by the time of the call.
    pub events: Vec<Event>,
    /// The injected faults, ordered by their start.
    pub faults: Vec<Fault>,
}

/// One operation of a client, from the call to the return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The process. A process that replaces a killed one needs a new number.
    pub client: u64,
    /// The task or thread in that process.
    pub task: u64,
    /// The operation.
    pub op: Op,
    /// How the lock is held.
    pub mode: Mode,
    /// The lock's name.
    pub lock: String,
    /// Identifies the lifetime of one guard, from its grant to its end; unique together with `client`.
    /// Zero if the event has no guard. It is not the store's lease, which may pass from guard to guard.
    pub hold: u64,
    /// Just before the call.
    pub call_ns: u64,
    /// Just after the return.
    pub return_ns: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// The guard's fence.
    pub fence: Option<u64>,
    /// Until when the holder believed, at that time, that it held the lock.
    pub believed_until_ns: Option<u64>,
}

line::words! {
    /// An operation on a lock.
    pub enum Op {
        /// Requests a new hold.
        Acquire = "acquire",
        /// Re-enters a hold, by its owner.
        Reenter = "reenter",
        /// Ends a [`Op::Reenter`]; the hold continues.
        Leave = "leave",
        /// Extends the hold.
        Renew = "renew",
        /// A release is about to be sent. Written before the request, so that a client killed during
        /// the release does not count as a holder.
        Releasing = "releasing",
        /// Ends the hold.
        Release = "release",
        /// The client has noticed that it no longer holds the lock.
        Lost = "lost",
    }
}

line::words! {
    /// The outcome of an operation.
    #[derive(Hash)]
    pub enum Outcome {
        /// The lock or the renewal was granted.
        Granted = "granted",
        /// Another client holds the lock.
        Busy = "busy",
        /// It certainly had no effect.
        Failed = "failed",
        /// It is unknown whether it had an effect.
        Unknown = "unknown",
        /// The caller did not wait for the result.
        Cancelled = "cancelled",
        /// The lock was held and is free now.
        Released = "released",
        /// The lock was no longer held.
        Lost = "lost",
        /// Done, without further information.
        Done = "done",
    }
}

line::words! {
    /// How a lock is held.
    pub enum Mode {
        /// By one client only.
        Exclusive = "exclusive",
        /// Together with other shared holders.
        Shared = "shared",
        /// As one of several permits.
        Permit = "permit",
    }
}

impl History {
    /// Reads all files that recorders and a nemesis wrote into `dir`. Ignores an unfinished last line,
    /// left by a killed writer.
    pub fn load(dir: &Path) -> Self {
        let mut history = Self::default();
        let files = fs::read_dir(dir)
            .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", dir.display()));
        for file in files {
            let path = file.expect("failed to read a directory entry").path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(recorder::EXTENSION) => history.events.extend(line::load(&path)),
                Some(nemesis::EXTENSION) => history.faults.extend(line::load(&path)),
                _ => {}
            }
        }
        history.sort();
        history
    }

    /// A hand-made history.
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

/// The current time on the clock of all histories.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has a monotonic clock");
    whole_ns(now.into())
}

/// The moment when `remaining` ends, for [`Pending::believed_until`].
///
/// The clock is read first: if the process is stopped in between, the result is too early, never too
/// late. That can hide nothing but the pause itself.
pub fn until_ns(remaining: impl FnOnce() -> Duration) -> u64 {
    let now_ns = now_ns();
    now_ns.saturating_add(whole_ns(remaining()))
}

/// The duration in nanoseconds, saturating after centuries.
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
