//! A guard, and what is written down about it.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, ErrorKind, Fence, Lease, LockName, Moment, Released};
use tenure_testkit::history::{Event, Mode, Op, Outcome, Pending, now_ns, until_ns};

use super::Context;

/// One hold, from its grant to its end.
pub struct Track {
    context: Arc<Context>,
    task: u64,
    lock: String,
    hold: u64,
    fence: u64,
    /// One moment on both clocks: the histories' and the guard's.
    first_until_ns: u64,
    first_deadline: Moment,
    written_until_ns: u64,
    lost_written: bool,
}

/// A hold whose lease was given away and may be taken up again.
pub struct Detached {
    track: Track,
    at_ns: u64,
    pub lease: Lease,
}

/// A guard of the async or of the blocking API.
pub trait AnyGuard {
    fn name(&self) -> &LockName;
    fn fence(&self) -> Fence;
    fn deadline(&self) -> Moment;
    fn remaining(&self) -> Duration;
    fn is_valid(&self) -> bool;
}

macro_rules! any_guard {
    ($guard:ty) => {
        impl AnyGuard for $guard {
            fn name(&self) -> &LockName {
                self.name()
            }

            fn fence(&self) -> Fence {
                self.fence()
            }

            fn deadline(&self) -> Moment {
                self.deadline()
            }

            fn remaining(&self) -> Duration {
                self.remaining()
            }

            fn is_valid(&self) -> bool {
                self.is_valid()
            }
        }
    };
}
any_guard!(tenure::Permit);
any_guard!(tenure::Guard);
any_guard!(tenure::blocking::Guard);

impl Track {
    /// Writes down a grant under this name.
    pub fn begin_as(
        context: &Arc<Context>,
        task: u64,
        call: Pending<'_>,
        guard: &impl AnyGuard,
        lock: String,
    ) -> Self {
        let until_ns = until_ns(|| guard.remaining());
        let fence = guard.fence().get();
        let hold = call.granted(Some(fence), until_ns);
        let mut track = Self {
            context: Arc::clone(context),
            task,
            lock,
            hold,
            fence,
            first_until_ns: until_ns,
            first_deadline: guard.deadline(),
            written_until_ns: until_ns,
            lost_written: false,
        };
        track.observe(guard);
        track
    }

    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Writes down until when the guard may be believed by now, if that is news.
    pub fn observe(&mut self, guard: &impl AnyGuard) {
        let until_ns = self.until_ns(guard);
        if until_ns > self.written_until_ns {
            self.written_until_ns = until_ns;
            let renewal = self.call(Op::Renew).fence(guard.fence().get());
            renewal.believed_until(until_ns).end(Outcome::Granted);
        }
    }

    /// Looks whether the guard is still valid, and writes down if it is not.
    pub fn look(&mut self, guard: &impl AnyGuard) {
        self.observe(guard);
        if !guard.is_valid() {
            self.lost();
        }
    }

    /// Writes down that the client knows of the loss.
    pub fn lost(&mut self) {
        if !self.lost_written {
            self.lost_written = true;
            self.context.recorder.lost(self.task, &self.lock, self.hold);
        }
    }

    /// Writes down that the hold was entered once more.
    pub fn reentered(&self, guard: &impl AnyGuard) {
        let reentry = self.call(Op::Reenter).fence(guard.fence().get());
        reentry.end(Outcome::Granted);
    }

    pub fn left(&self) {
        self.call(Op::Leave).end(Outcome::Done);
    }

    /// Writes down that the last guard of the hold is about to be released.
    pub fn releasing(&mut self, guard: &impl AnyGuard) -> Pending<'_> {
        self.look(guard);
        let (recorder, until_ns) = (&self.context.recorder, self.until_ns(guard));
        let release = recorder.release(self.task, &self.lock, self.hold, until_ns);
        // Paused since it looked, it lets go of what may be another's by now.
        if !self.lost_written && !guard.is_valid() {
            recorder.lost(self.task, &self.lock, self.hold);
        }
        release
    }

    /// The lease was given away. The hold continues, because no other client can have the lock until it
    /// ends; whether it does is known when it was adopted or not.
    pub fn detached(self, lease: Lease, at_ns: u64) -> Detached {
        Detached {
            track: self,
            at_ns,
            lease,
        }
    }

    /// The end of the hold for a reason that is known only later.
    pub fn ended(&self, at_ns: u64) {
        self.context.recorder.record(&Event {
            client: self.context.number,
            task: self.task,
            op: Op::Releasing,
            mode: Mode::Exclusive,
            lock: self.lock.clone(),
            hold: self.hold,
            call_ns: at_ns,
            return_ns: now_ns(),
            outcome: Outcome::Done,
            fence: None,
            believed_until_ns: None,
        });
    }

    /// On the histories' clock, also when it has passed: then `remaining` says nothing more.
    fn until_ns(&self, guard: &impl AnyGuard) -> u64 {
        let later = guard.deadline().saturating_since(self.first_deadline);
        self.first_until_ns + u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)
    }

    fn call(&self, op: Op) -> Pending<'_> {
        let call = self.context.recorder.begin(self.task, op, &self.lock);
        call.hold(self.hold)
    }
}

impl Detached {
    /// The lease was taken up again, with a guard that has a deadline of its own. If that has
    /// passed already, because this process was paused on the way, nobody has believed since.
    pub fn adopted(mut self, guard: &impl AnyGuard) -> Option<Track> {
        let until_ns = until_ns(|| guard.remaining());
        if !guard.is_valid() {
            self.abandoned();
            return None;
        }
        self.track.first_until_ns = until_ns;
        self.track.first_deadline = guard.deadline();
        self.track.observe(guard);
        Some(self.track)
    }

    /// It was not.
    pub fn abandoned(self) {
        self.track.ended(self.at_ns);
    }
}

/// What to write down about a release.
pub fn outcome(released: &tenure::Result<Released>) -> Outcome {
    match released {
        Ok(Released::WasHeld) => Outcome::Released,
        Ok(Released::AlreadyGone) => Outcome::Lost,
        Ok(_) => Outcome::Unknown,
        Err(_) => Outcome::Failed,
    }
}

/// Writes down what an acquisition of this lock came to.
pub fn settle<G: AnyGuard>(
    context: &Arc<Context>,
    task: u64,
    call: Pending<'_>,
    result: Result<Option<G>, Error>,
) -> Option<(G, Track)> {
    match result {
        Ok(Some(guard)) => {
            let lock = guard.name().as_str().to_owned();
            let track = Track::begin_as(context, task, call, &guard, lock);
            return Some((guard, track));
        }
        Ok(None) => call.end(Outcome::Busy),
        Err(error) if error.kind() == ErrorKind::Busy => call.end(Outcome::Busy),
        Err(error) => {
            complain_if_wrong("acquire", &error);
            call.end(Outcome::Failed);
        }
    }
    None
}

/// An error that no fault explains.
pub fn complain_if_wrong(what: &str, error: &Error) {
    let explained = matches!(
        error.kind(),
        ErrorKind::Unavailable
            | ErrorKind::OutOfMemory
            | ErrorKind::NotReplicated
            | ErrorKind::Lost
            | ErrorKind::Busy
    );
    if !explained {
        println!("wrong: {what}: {error:?}");
    }
}
