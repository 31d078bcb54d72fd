//! Once per fire time of a schedule, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::block_on::block_on;
use super::handle::Handle;
use crate::error::Result;
use crate::lease::{Fence, LeaseId};
use crate::name::LockName;
use crate::once::OnceState;
use crate::standing::LostReason;

/// One fire time of a schedule. See [`tenure::Once`](crate::Once).
///
/// ```
/// use tenure::blocking::{Start, Tenure};
///
/// # fn main() -> Result<(), tenure::Error> {
/// let tenure = Tenure::connect("memory://")?;
/// if let Start::Here(run) = tenure.once("nightly", "2026-03-01T03:00Z").try_begin()? {
///     println!("this process does it");
///     run.complete()?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until a run begins"]
pub struct Once {
    once: crate::Once,
    handle: Arc<Handle>,
}

/// A run for one fire time. See [`tenure::Run`](crate::Run).
#[must_use = "if unused, the run ends at once, without completing"]
pub struct Run {
    // Before `handle`, so that its release is under way when the handle waits for it.
    run: crate::Run,
    handle: Arc<Handle>,
}

/// Whether a run begins here. See [`tenure::Start`](crate::Start).
#[derive(Debug)]
#[must_use = "if it is a run, it has begun"]
pub enum Start {
    /// This caller runs the job.
    Here(Run),
    /// No run begins, for this reason.
    Elsewhere(OnceState),
}

impl Once {
    pub(super) fn new(handle: &Arc<Handle>, schedule: &str, fire_time: &str) -> Self {
        Self {
            once: handle.locks.once(schedule, fire_time),
            handle: Arc::clone(handle),
        }
    }

    /// See [`tenure::Once::ttl`](crate::Once::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|once| once.ttl(ttl))
    }

    /// See [`tenure::Once::no_renewal`](crate::Once::no_renewal).
    pub fn no_renewal(self) -> Self {
        self.change(crate::Once::no_renewal)
    }

    /// See [`tenure::Once::max_hold`](crate::Once::max_hold).
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|once| once.max_hold(length))
    }

    /// See [`tenure::Once::wait`](crate::Once::wait).
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|once| once.wait(limit))
    }

    /// See [`tenure::Once::replicas`](crate::Once::replicas).
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|once| once.replicas(replicas))
    }

    /// See [`tenure::Once::meta`](crate::Once::meta).
    pub fn meta(self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|once| once.meta(field, value))
    }

    /// See [`tenure::Once::retry`](crate::Once::retry).
    pub fn retry(self, retry: bool) -> Self {
        self.change(|once| once.retry(retry))
    }

    /// See [`tenure::Once::remember`](crate::Once::remember).
    pub fn remember(self, time: Duration) -> Self {
        self.change(|once| once.remember(time))
    }

    /// The schedule's name, as given.
    pub fn name(&self) -> &str {
        self.once.name()
    }

    /// The fire time, as given.
    pub fn fire_time(&self) -> &str {
        self.once.fire_time()
    }

    /// Begins a run, if none did. See [`tenure::Once::try_begin`](crate::Once::try_begin).
    pub fn try_begin(&self) -> Result<Start> {
        block_on(self.once.try_begin()).map(|start| self.start(start))
    }

    /// The same, but waits for a run in progress. See [`tenure::Once::begin`](crate::Once::begin).
    pub fn begin(&self) -> Result<Start> {
        block_on(self.once.begin()).map(|start| self.start(start))
    }

    /// What the store knows. See [`tenure::Once::state`](crate::Once::state).
    pub fn state(&self) -> Result<OnceState> {
        block_on(self.once.state())
    }

    fn change(mut self, change: impl FnOnce(crate::Once) -> crate::Once) -> Self {
        self.once = change(self.once);
        self
    }

    fn start(&self, start: crate::Start) -> Start {
        match start {
            crate::Start::Here(run) => Start::Here(Run {
                run,
                handle: Arc::clone(&self.handle),
            }),
            crate::Start::Elsewhere(state) => Start::Elsewhere(state),
        }
    }
}

impl Run {
    /// The name of the run's lock.
    pub fn name(&self) -> &LockName {
        self.run.name()
    }

    /// The fence. See [`tenure::Run::fence`](crate::Run::fence).
    pub fn fence(&self) -> Fence {
        self.run.fence()
    }

    /// The lease's id, as shown by listings.
    pub fn lease_id(&self) -> &LeaseId {
        self.run.guard().lease_id()
    }

    /// The time until the deadline if no renewal succeeds; zero once the lease is lost.
    pub fn remaining(&self) -> Duration {
        self.run.guard().remaining()
    }

    /// Whether the lease is held, as far as is known without asking the store.
    pub fn is_valid(&self) -> bool {
        self.run.is_valid()
    }

    /// Makes sure that at least `need` is left. See [`tenure::Guard::ensure`](crate::Guard::ensure).
    pub fn ensure(&self, need: Duration) -> Result<()> {
        block_on(self.run.ensure(need))
    }

    /// Waits until the lease is lost, and returns why.
    pub fn wait_lost(&self) -> LostReason {
        block_on(self.run.lost())
    }

    /// A token that is cancelled when the lease is lost or released.
    pub fn lost_token(&self) -> CancellationToken {
        self.run.lost_token()
    }

    /// Records that the job is done. See [`tenure::Run::complete`](crate::Run::complete).
    pub fn complete(self) -> Result<()> {
        let Self { run, handle } = self;
        let completed = block_on(run.complete());
        drop(handle);
        completed
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.once, f)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.run, f)
    }
}
