//! The guard of several locks that are held together.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::client_handle::ClientHandle;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::standing::{LostReason, Released, Standing};

/// Several held locks: what [`MultiLock`](crate::MultiLock) grants. It is valid as long as all of them
/// are held.
///
/// Each name has its own lease and its own [`fence`](MultiGuard::fence): pass to each resource the
/// fence of the lock that protects it. The leases are renewed together in the background.
///
/// Dropping it releases all locks in the background, as for a [`Guard`](crate::Guard).
#[must_use = "if unused, the locks are released at once"]
pub struct MultiGuard {
    client: Arc<ClientHandle>,
    /// In the order in which the names were given.
    guards: Vec<Guard>,
}

impl MultiGuard {
    pub(crate) fn new(client: Arc<ClientHandle>, guards: Vec<Guard>) -> Self {
        Self { client, guards }
    }

    pub(crate) fn add(&mut self, guards: Vec<Guard>) {
        self.guards.extend(guards);
    }

    /// The names of the locks, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.guards.iter().map(Guard::name)
    }

    /// The fencing token of one lock; `None` if it is not one of these. See
    /// [`Guard::fence`](crate::Guard::fence).
    pub fn fence(&self, name: impl AsRef<str>) -> Option<Fence> {
        let name = name.as_ref();
        let mut fences = self.fences();
        let found = fences.find(|(known, _)| known.as_str() == name);
        found.map(|(_, fence)| fence)
    }

    /// The fencing token of each lock. Tokens of different locks may be equal: they are compared only
    /// with those of the same lock.
    pub fn fences(&self) -> impl Iterator<Item = (&LockName, Fence)> {
        self.guards
            .iter()
            .map(|guard| (guard.name(), guard.fence()))
    }

    /// The id of each lease, as shown by `holder()` and listings.
    pub fn lease_ids(&self) -> impl Iterator<Item = (&LockName, &LeaseId)> {
        self.guards
            .iter()
            .map(|guard| (guard.name(), guard.lease_id()))
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        let ttls = self.guards.iter().map(Guard::ttl);
        ttls.min().unwrap_or_default()
    }

    /// The deadline until which all locks can be relied on, by the local clock: the earliest of their
    /// deadlines. See [`Guard::deadline`](crate::Guard::deadline).
    pub fn deadline(&self) -> Moment {
        let deadlines = self.guards.iter().map(Guard::deadline);
        let earliest = deadlines.min();
        earliest.unwrap_or_else(|| self.client.core.clock.now())
    }

    /// The time until the deadline if no renewal succeeds; zero once a lock is lost.
    pub fn remaining(&self) -> Duration {
        let remaining = self.guards.iter().map(Guard::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Whether all locks are held, as far as is known without asking the store. See
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.standing() != Standing::Lost
    }

    /// Whether all locks are held, one is suspect, or one is lost at this moment.
    pub fn standing(&self) -> Standing {
        let mut standing = Standing::Held;
        for guard in &self.guards {
            match guard.standing() {
                Standing::Held => {}
                Standing::Suspect => standing = Standing::Suspect,
                Standing::Lost => return Standing::Lost,
            }
        }
        standing
    }

    /// Makes sure that at least `need` is left for all locks, renewing their leases if necessary.
    ///
    /// # Errors
    ///
    /// As for [`Guard::ensure`](crate::Guard::ensure), for the first lock to which it applies.
    ///
    /// # Cancel safety
    ///
    /// Safe: once started, a renewal continues in the background.
    pub async fn ensure(&self, need: Duration) -> Result<()> {
        // At the same time, so that the leases are renewed together.
        let ensuring = self.guards.iter().map(|guard| Box::pin(guard.ensure(need)));
        let mut ensuring: Vec<_> = ensuring.collect();
        poll_fn(|context| {
            let mut failed = None;
            ensuring.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Ready(result) => {
                    failed = failed.take().or(result.err());
                    false
                }
                Poll::Pending => true,
            });
            match failed {
                Some(error) => Poll::Ready(Err(error)),
                None if ensuring.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Resolves when the first of the locks is no longer held, with its name and the reason: no later
    /// than the deadline, even if the server cannot be reached. The others are still held then, until
    /// the guard is released or dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: calling it again gives the same kind of result.
    pub async fn lost(&self) -> (LockName, LostReason) {
        let watched = if bug(Bug::SeveralWatchesFirst) {
            &self.guards[..1]
        } else {
            &self.guards[..]
        };
        let waits = watched.iter().map(|guard| {
            let lost = async move { (guard.name().clone(), guard.lost().await) };
            Box::pin(lost)
        });
        first_of(waits.collect()).await
    }

    /// A token that is cancelled when one of the locks is no longer held. See
    /// [`Guard::lost_token`](crate::Guard::lost_token).
    pub fn lost_token(&self) -> CancellationToken {
        let token = CancellationToken::new();
        let ends = self.guards.iter().map(Guard::lost_token);
        let ends: Vec<CancellationToken> = ends.collect();
        let to_cancel = token.clone();
        // It ends with the guard at the latest.
        self.client.engine.spawn(async move {
            let ended = ends.iter().map(|end| Box::pin(end.cancelled()));
            first_of(ended.collect()).await;
            to_cancel.cancel();
        });
        token
    }

    /// Releases all locks, in one call where the store can do that, and reports for each whether it was
    /// still held, in the order of the names.
    ///
    /// # Errors
    ///
    /// If the store refuses a release for good. The other locks are released all the same. A missing
    /// reply is not an error: see [`Released::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the releases continue in the background.
    pub async fn release(mut self) -> Result<Vec<(LockName, Released)>> {
        let guards = std::mem::take(&mut self.guards);
        let names: Vec<LockName> = guards.iter().map(|guard| guard.name().clone()).collect();
        let released = release(&self.client, guards).await;
        names
            .into_iter()
            .zip(released)
            .map(|(name, released)| Ok((name, released?)))
            .collect()
    }

    /// Splits it into a guard for each lock, in the order of the names: to release or
    /// [detach](Guard::detach) them one by one.
    pub fn into_guards(mut self) -> Vec<Guard> {
        std::mem::take(&mut self.guards)
    }

    /// The error of a guard that is no longer valid.
    pub(crate) fn lost_error(&self) -> Error {
        let lost = self.guards.iter().find(|guard| !guard.is_valid());
        lost.or(self.guards.first())
            .map_or_else(Error::closed, Guard::lost_error)
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        let guards = std::mem::take(&mut self.guards);
        if !guards.is_empty() {
            drop(release(&self.client, guards));
        }
    }
}

/// Begins to release all of them.
fn release(
    client: &Arc<ClientHandle>,
    guards: Vec<Guard>,
) -> impl Future<Output = Vec<Result<Released>>> + Send + use<> {
    let holds = guards.into_iter().map(Guard::into_hold).collect();
    Hold::release_several(client, holds)
}

/// The result of the first that is ready.
async fn first_of<F: Future + Unpin>(mut futures: Vec<F>) -> F::Output {
    poll_fn(|context| {
        for future in &mut futures {
            if let Poll::Ready(done) = pin!(future).poll(context) {
                return Poll::Ready(done);
            }
        }
        Poll::Pending
    })
    .await
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("guards", &self.guards)
            .finish_non_exhaustive()
    }
}
