//! Writes down what a client does.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::line::{Fields, Line, Log, Writer};
use super::{Event, Mode, Op, Outcome, now_ns};

pub(super) const EXTENSION: &str = "events";

/// Writes a client's events to a file of its own, each with one plain `write`, so that `kill -9`
/// loses at most the call that was under way.
#[derive(Debug)]
pub struct Recorder {
    client: u64,
    log: Log,
    holds: AtomicU64,
}

/// A call that has begun; [`end`](Self::end) writes it down.
///
/// Dropped without an end, as by a cancelled future, it is recorded as [`Outcome::Cancelled`].
#[derive(Debug)]
#[must_use = "dropped at once it is recorded as cancelled"]
pub struct Pending<'a> {
    recorder: &'a Recorder,
    event: Event,
    ended: bool,
}

impl Recorder {
    /// A recorder for the process `client`, writing into `dir`; panics if there was one already.
    #[track_caller]
    pub fn create(dir: &Path, client: u64) -> Self {
        Self {
            client,
            log: Log::create(&dir.join(format!("client-{client}.{EXTENSION}"))),
            holds: AtomicU64::new(0),
        }
    }

    /// The number for a new hold, to be given to its grant and to all that follows.
    pub fn next_hold(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Any call; takes the time now.
    pub fn begin(&self, task: u64, op: Op, lock: &str) -> Pending<'_> {
        let now_ns = now_ns();
        Pending {
            recorder: self,
            event: Event {
                client: self.client,
                task,
                op,
                mode: Mode::Exclusive,
                lock: lock.into(),
                hold: 0,
                call_ns: now_ns,
                return_ns: now_ns,
                outcome: Outcome::Cancelled,
                fence: None,
                believed_until_ns: None,
            },
            ended: false,
        }
    }

    /// An acquisition; takes the time now.
    pub fn acquire(&self, task: u64, lock: &str) -> Pending<'_> {
        self.begin(task, Op::Acquire, lock)
    }

    /// The release of a hold; takes the time now and writes at once that it was called. Call it
    /// before the request leaves, with what the guard believed at that time ([`until_ns`]).
    ///
    /// [`until_ns`]: super::until_ns
    pub fn release(&self, task: u64, lock: &str, hold: u64, believed_until_ns: u64) -> Pending<'_> {
        let releasing = self.begin(task, Op::Releasing, lock).hold(hold);
        let releasing = releasing.believed_until(believed_until_ns);
        let mut release = self.begin(task, Op::Release, lock).hold(hold);
        release.event.call_ns = releasing.event.call_ns;
        releasing.end(Outcome::Done);
        release.believed_until(believed_until_ns)
    }

    /// The client notices now that it no longer holds the lock.
    pub fn lost(&self, task: u64, lock: &str, hold: u64) {
        let lost = self.begin(task, Op::Lost, lock).hold(hold);
        lost.end(Outcome::Done);
    }

    /// Writes an event made by hand.
    pub fn record(&self, event: &Event) {
        self.log.write(event);
    }
}

impl Pending<'_> {
    /// The hold that it is about.
    pub fn hold(mut self, hold: u64) -> Self {
        self.event.hold = hold;
        self
    }

    /// In which way; exclusive if nothing is said.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.event.mode = mode;
        self
    }

    /// The guard's fence.
    pub fn fence(mut self, fence: u64) -> Self {
        self.event.fence = Some(fence);
        self
    }

    /// Until when the holder believes to hold the lock; see [`until_ns`](super::until_ns).
    pub fn believed_until(mut self, ns: u64) -> Self {
        self.event.believed_until_ns = Some(ns);
        self
    }

    /// The call has returned: takes the time and writes.
    pub fn end(mut self, outcome: Outcome) {
        self.event.outcome = outcome;
        self.write();
    }

    /// A granted acquisition, with all that belongs to it. Returns the hold's number.
    pub fn granted(self, fence: Option<u64>, believed_until_ns: u64) -> u64 {
        let hold = self.recorder.next_hold();
        let mut granted = self.hold(hold).believed_until(believed_until_ns);
        granted.event.fence = fence;
        granted.end(Outcome::Granted);
        hold
    }

    fn write(&mut self) {
        self.ended = true;
        self.event.return_ns = now_ns();
        self.recorder.record(&self.event);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.write();
        }
    }
}

impl Line for Event {
    fn encode(&self) -> String {
        Writer::default()
            .field(self.client)
            .field(self.task)
            .field(self.op)
            .field(self.mode)
            .text(&self.lock)
            .field(self.hold)
            .field(self.call_ns)
            .field(self.return_ns)
            .field(self.outcome)
            .optional(self.fence)
            .optional(self.believed_until_ns)
            .end()
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            client: fields.value()?,
            task: fields.value()?,
            op: fields.value()?,
            mode: fields.value()?,
            lock: fields.text()?,
            hold: fields.value()?,
            call_ns: fields.value()?,
            return_ns: fields.value()?,
            outcome: fields.value()?,
            fence: fields.optional()?,
            believed_until_ns: fields.optional()?,
        })
    }
}
