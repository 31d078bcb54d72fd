//! Records the operations of a client.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::line::{Fields, Line, Log, Writer};
use super::{Event, Mode, Op, Outcome, now_ns};

pub(super) const EXTENSION: &str = "events";

/// Writes a client's events to its own file, each with one plain `write`, so that `kill -9` loses at
/// most the call in progress.
#[derive(Debug)]
pub struct Recorder {
    client: u64,
    log: Log,
    holds: AtomicU64,
}

/// A call in progress; [`end`](Self::end) records it.
///
/// Dropped without `end`, for example by a cancelled future, it is recorded as
/// [`Outcome::Cancelled`].
#[derive(Debug)]
#[must_use = "if dropped, it is recorded as cancelled"]
pub struct Pending<'a> {
    recorder: &'a Recorder,
    event: Event,
    ended: bool,
}

impl Recorder {
    /// Creates the recorder of the process `client` in `dir`; panics if there is one already.
    #[track_caller]
    pub fn create(dir: &Path, client: u64) -> Self {
        Self {
            client,
            log: Log::create(&dir.join(format!("client-{client}.{EXTENSION}"))),
            holds: AtomicU64::new(0),
        }
    }

    /// A number for a new hold, used by its grant and all later events.
    pub fn next_hold(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins any call now.
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

    /// Begins an acquisition now.
    pub fn acquire(&self, task: u64, lock: &str) -> Pending<'_> {
        self.begin(task, Op::Acquire, lock)
    }

    /// Begins the release of a hold now, and records immediately that it was called. Call it before
    /// sending the request, with what the guard believed at that time ([`until_ns`]).
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

    /// Records that the client notices now that it no longer holds the lock.
    pub fn lost(&self, task: u64, lock: &str, hold: u64) {
        let lost = self.begin(task, Op::Lost, lock).hold(hold);
        lost.end(Outcome::Done);
    }

    /// Records a hand-made event.
    pub fn record(&self, event: &Event) {
        self.log.write(event);
    }
}

impl Pending<'_> {
    /// Sets the hold.
    pub fn hold(mut self, hold: u64) -> Self {
        self.event.hold = hold;
        self
    }

    /// When the call began.
    pub fn called_ns(&self) -> u64 {
        self.event.call_ns
    }

    /// Sets when the call began.
    pub fn called_at(mut self, ns: u64) -> Self {
        self.event.call_ns = ns;
        self
    }

    /// Sets the mode; exclusive by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.event.mode = mode;
        self
    }

    /// Sets the guard's fence.
    pub fn fence(mut self, fence: u64) -> Self {
        self.event.fence = Some(fence);
        self
    }

    /// Sets until when the holder believes that it holds the lock; see [`until_ns`](super::until_ns).
    pub fn believed_until(mut self, ns: u64) -> Self {
        self.event.believed_until_ns = Some(ns);
        self
    }

    /// Records that the call returns now.
    pub fn end(mut self, outcome: Outcome) {
        self.event.outcome = outcome;
        self.write();
    }

    /// Records a granted acquisition and returns the number of its hold.
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
