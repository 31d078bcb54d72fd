//! What the caller holds while it holds a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::lease::{Fence, Lease, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::standing::{LostReason, Released, Standing};

/// A held lock.
///
/// It is renewed in the background for as long as it lives, unless it was taken with
/// [`fixed`](crate::Lock::fixed). Pass its [`fence`](Guard::fence) to what the lock protects, stop
/// the work when [`lost`](Guard::lost) resolves, and end it with [`release`](Guard::release).
///
/// # Release on drop is not immediate
///
/// Dropping a guard hands the release to the client's background thread: it never blocks, panics
/// or needs a runtime, and it cannot tell whether it worked. A program that ends right afterwards
/// may be faster than the release; the lease then ends by itself. Use [`release`](Guard::release)
/// or [`Locks::shutdown`](crate::Locks::shutdown) to be sure.
#[must_use = "if unused, the lock is released at once"]
pub struct Guard {
    hold: Arc<Hold>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.hold.belief().held.name
    }

    /// The number to show to the protected resource, which refuses a lower one than it has seen.
    /// The same for all guards of a reentrant chain.
    pub fn fence(&self) -> Fence {
        let fence = self.hold.belief().fence;
        if bug(Bug::FenceBumpedOnReentry) {
            return Fence::new(fence.get() + Arc::strong_count(&self.hold) as u64);
        }
        fence
    }

    /// The identity of the lease, as `holder()` and listings show it.
    pub fn lease_id(&self) -> &LeaseId {
        &self.hold.belief().held.id
    }

    /// The length of the lease from one renewal to its end.
    pub fn ttl(&self) -> Duration {
        self.hold.belief().held.ttl
    }

    /// The moment until which the guard may be believed, by the local clock. Each renewal moves
    /// it, but never beyond what [`max_hold`](crate::Lock::max_hold) allows.
    pub fn deadline(&self) -> Moment {
        self.hold.belief().believable_until()
    }

    /// How long the guard may still be believed, if no renewal succeeds; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.belief().remaining(self.hold.now())
    }

    /// Whether the lock is held, as far as can be known without asking. True is no promise for
    /// the next line: a process may be paused at any point. Only the fence is.
    pub fn is_valid(&self) -> bool {
        self.standing() != Standing::Lost
    }

    /// How sure the holder can be at this moment.
    pub fn standing(&self) -> Standing {
        self.hold.belief().standing(self.hold.now())
    }

    /// Makes sure that at least `need` is left, and renews the lease if it is not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease is lost or cannot be made to last
    /// that long, and [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if `need` is
    /// longer than the lease can ever last.
    ///
    /// # Cancel safety
    ///
    /// Safe: a renewal that was begun goes on.
    pub async fn ensure(&self, need: Duration) -> Result<()> {
        self.hold.ensure(need).await
    }

    /// Resolves when the lock is no longer held, with the reason: at the deadline at the latest,
    /// without any help from the server.
    ///
    /// # Cancel safety
    ///
    /// Safe: asking again gives the same answer.
    pub async fn lost(&self) -> LostReason {
        let belief = self.hold.belief();
        belief.no_longer_held().cancelled().await;
        belief.lost_reason().unwrap_or(LostReason::Expired)
    }

    /// A token that is cancelled when the lock is no longer held: when it is lost, and also when
    /// it is released or its guard is dropped. Give it to tasks that do the protected work.
    /// Cancelling it yourself stops them and nothing else.
    pub fn lost_token(&self) -> CancellationToken {
        self.hold.belief().no_longer_held().child_token()
    }

    /// Lets go of the lock and says what really happened.
    ///
    /// Within a reentrant chain the lock stays held until its last guard goes; the answer is then
    /// given by the deadline alone.
    ///
    /// # Errors
    ///
    /// If the store refuses the release for good, for example because the user lost the right to
    /// it. Lost answers are not errors but [`Released::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the release goes on in the background.
    pub async fn release(self) -> Result<Released> {
        self.hold.release().await
    }

    /// Gives the lease away, unrenewed: whoever gets it may [`adopt`](crate::Locks::adopt) it
    /// before it ends, in this or in another process.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if there is nothing left to give, and
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if other guards of a reentrant chain
    /// still hold it.
    pub fn detach(self) -> Result<Lease> {
        self.hold.detach()
    }

    /// Gives the lease away as [`detach`](Guard::detach) does, and has it end after `rest`, be that
    /// sooner or later than it would have: so a lock can be kept for a while without anybody waiting
    /// for its end. 100 ms to 24 h; on a [`Redlock`](crate::Redlock) no longer than its
    /// `longest_ttl`. The lease says how long it is.
    ///
    /// # Errors
    ///
    /// As for `detach`; [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if `rest` is
    /// out of its limits; and whatever keeps the store from answering. Then the lease is given away
    /// all the same, and ends when it would have.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the lease is given away, and the store is told in the background.
    pub async fn detach_for(self, rest: Duration) -> Result<Lease> {
        self.hold.detach_for(rest).await
    }

    /// The error of a guard that is no longer valid.
    pub(crate) fn lost_error(&self) -> Error {
        let belief = self.hold.belief();
        let reason = belief.lost_reason().unwrap_or(LostReason::Expired);
        Error::lost(&belief.held.name, reason)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("lease_id", self.lease_id())
            .field("fence", &self.fence())
            .field("standing", &self.standing())
            .field("remaining", &self.remaining())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        fn holds<T: Send + Sync + 'static>() {}
        holds::<Guard>();
        holds::<Error>();
        holds::<crate::Tenure>();
        holds::<crate::Lock>();
        holds::<crate::Owner>();
    }
}
