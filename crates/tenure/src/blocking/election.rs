//! Leader election, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::block_on::block_on;
use super::handle::Handle;
use super::{Locks, Tenure};
use crate::candidates::Candidate;
use crate::error::{Error, Result};
use crate::leader::Leader;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released, Resigned, Standing};

/// An election. See [`tenure::Election`](crate::Election).
///
/// ```
/// use tenure::blocking::Tenure;
///
/// # fn main() -> Result<(), tenure::Error> {
/// let tenure = Tenure::connect("memory://")?;
/// let leadership = tenure.election("scheduler").campaign("node-1")?;
/// println!("leads in term {}", leadership.term());
/// leadership.resign()?;
/// # Ok(()) }
/// ```
#[must_use = "an election does nothing until it is used"]
pub struct Election<T: Client = Tenure> {
    election: crate::Election<T::Async>,
    handle: Arc<Handle>,
}

/// An election that was won. See [`tenure::Leadership`](crate::Leadership).
#[must_use = "if unused, the leader resigns at once"]
pub struct Leadership<T: Client = Tenure> {
    // Before `handle`, so that its release is under way when the handle waits for it.
    leadership: crate::Leadership<T::Async>,
    handle: Arc<Handle>,
}

/// An observer of an election. See [`tenure::Observer`](crate::Observer).
#[derive(Debug)]
pub struct Observer {
    observer: crate::Observer,
}

/// A client of this module, and the async client behind it.
pub trait Client: private::Sealed {
    /// The async client.
    type Async;
}

impl Client for Tenure {
    type Async = crate::Tenure;
}

impl Client for super::Redlock {
    type Async = crate::Redlock;
}

impl Client for Locks {
    type Async = crate::Locks;
}

mod private {
    pub trait Sealed {}

    impl Sealed for crate::blocking::Tenure {}
    impl Sealed for crate::blocking::Redlock {}
    impl Sealed for crate::blocking::Locks {}
}

impl<T: Client> Election<T> {
    pub(super) fn new(handle: &Arc<Handle>, name: &str) -> Self {
        Self {
            election: handle.locks.election_of(name),
            handle: Arc::clone(handle),
        }
    }

    /// See [`tenure::Election::ttl`](crate::Election::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|election| election.ttl(ttl))
    }

    /// See [`tenure::Election::wait`](crate::Election::wait).
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|election| election.wait(limit))
    }

    /// See [`tenure::Election::replicas`](crate::Election::replicas).
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|election| election.replicas(replicas))
    }

    /// See [`tenure::Election::max_hold`](crate::Election::max_hold).
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|election| election.max_hold(length))
    }

    /// See [`tenure::Election::health`](crate::Election::health). Here the check may block: it runs on
    /// a thread of its own, unless the campaign is started inside a tokio runtime.
    pub fn health(self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.change(|election| election.health(move || std::future::ready(check())))
    }

    /// The election's name, as given.
    pub fn name(&self) -> &str {
        self.election.name()
    }

    /// Waits until elected. See [`tenure::Election::campaign`](crate::Election::campaign).
    pub fn campaign(&self, value: impl Into<String>) -> Result<Leadership<T>> {
        let leadership = block_on(self.election.campaign(value))?;
        Ok(Leadership {
            leadership,
            handle: Arc::clone(&self.handle),
        })
    }

    /// Campaigns, runs `work` as the leader, and resigns. The work cannot be stopped if the leadership
    /// is lost: check it, and use its term.
    ///
    /// # Errors
    ///
    /// As for [`campaign`](Election::campaign), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// leadership was lost before the work finished.
    pub fn with<R>(
        &self,
        value: impl Into<String>,
        work: impl FnOnce(&Leadership<T>) -> R,
    ) -> Result<R> {
        let leadership = self.campaign(value)?;
        let done = work(&leadership);
        if !leadership.is_valid() {
            return Err(leadership.leadership.lost_error());
        }
        let name = leadership.name().clone();
        match leadership.resign()? {
            Released::AlreadyGone => Err(Error::lost(&name, LostReason::Gone)),
            Released::WasHeld | Released::Unknown => Ok(done),
        }
    }

    /// Who leads now. See [`tenure::Election::leader`](crate::Election::leader).
    pub fn leader(&self) -> Result<Option<Leader>> {
        block_on(self.election.leader())
    }

    /// Observes who leads. See [`tenure::Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Result<Observer> {
        let observer = self.election.observe()?;
        Ok(Observer { observer })
    }

    fn change(
        mut self,
        change: impl FnOnce(crate::Election<T::Async>) -> crate::Election<T::Async>,
    ) -> Self {
        self.election = change(self.election);
        self
    }
}

impl Election<Tenure> {
    /// Who waits to be elected. See [`tenure::Election::candidates`](crate::Election::candidates).
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        block_on(self.election.candidates())
    }
}

impl<T: Client> Leadership<T> {
    /// The election's name.
    pub fn name(&self) -> &LockName {
        self.leadership.name()
    }

    /// The term. See [`tenure::Leadership::term`](crate::Leadership::term).
    pub fn term(&self) -> Fence {
        self.leadership.term()
    }

    /// What the leader campaigned with, or proclaimed last.
    pub fn value(&self) -> Arc<str> {
        self.leadership.value()
    }

    /// The lease's id, as shown by `holder()` and listings.
    pub fn lease_id(&self) -> &LeaseId {
        self.leadership.lease_id()
    }

    /// The deadline until which the leadership can be relied on.
    pub fn deadline(&self) -> Moment {
        self.leadership.deadline()
    }

    /// The time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.leadership.remaining()
    }

    /// Whether it leads. See [`tenure::Leadership::is_valid`](crate::Leadership::is_valid).
    pub fn is_valid(&self) -> bool {
        self.leadership.is_valid()
    }

    /// How sure this client is that it leads.
    pub fn standing(&self) -> Standing {
        self.leadership.standing()
    }

    /// A token that is cancelled when it no longer leads.
    pub fn lost_token(&self) -> CancellationToken {
        self.leadership.lost_token()
    }

    /// Blocks until it no longer leads. See [`tenure::Leadership::lost`](crate::Leadership::lost).
    pub fn wait_lost(&self) -> LostReason {
        block_on(self.leadership.lost())
    }

    /// Replaces the value. See [`tenure::Leadership::proclaim`](crate::Leadership::proclaim).
    pub fn proclaim(&self, value: impl Into<String>) -> Result<()> {
        block_on(self.leadership.proclaim(value))
    }

    /// Resigns. See [`tenure::Leadership::resign`](crate::Leadership::resign).
    pub fn resign(self) -> Result<Released> {
        block_on(self.leadership.resign())
    }
}

impl Leadership<Tenure> {
    /// Resigns in favour of a candidate. See
    /// [`tenure::Leadership::resign_to`](crate::Leadership::resign_to).
    pub fn resign_to(self, candidate: &Candidate) -> Result<Resigned> {
        let Self { leadership, handle } = self;
        let resigned = block_on(leadership.resign_to(candidate));
        drop(handle);
        resigned
    }
}

impl Observer {
    /// Blocks until the next report. See [`tenure::Observer::next`](crate::Observer::next).
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and an error is not the end"
    )]
    pub fn next(&mut self) -> Result<Option<Leader>> {
        block_on(self.observer.next())
    }
}

impl<T: Client> fmt::Debug for Election<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.election, f)
    }
}

impl<T: Client> fmt::Debug for Leadership<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("leadership", &self.leadership)
            .field("handle", &Arc::strong_count(&self.handle))
            .finish()
    }
}
