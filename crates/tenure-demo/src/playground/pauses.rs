//! Pauses, like those of a process that is stopped, swapped out or collecting garbage.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use tenure::{Lock, Unordered};

/// Blocks threads until their pause or the run is over.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    is_over: Mutex<bool>,
    ended: Condvar,
}

/// A waker that blocks the thread that calls it.
struct Halt {
    pauses: Arc<Pauses>,
    until: Instant,
}

impl Pauses {
    /// Halts a whole instance for `length`: this thread, which drives its runtime, and the thread on which
    /// its client renews leases.
    pub(crate) fn halt(self: &Arc<Self>, lock: Option<&Lock<Unordered>>, length: Duration) {
        let until = Instant::now() + length;
        // The client's thread calls the waker, which blocks it between two steps.
        let halt = Arc::new(Halt {
            pauses: Arc::clone(self),
            until,
        });
        let waker = Waker::from(halt);
        let mut context = Context::from_waker(&waker);
        if let Some(lock) = lock {
            // A reply that is already there calls no waker, so poll until one is pending.
            let mut is_pending = false;
            while !is_pending && Instant::now() < until {
                let holder = tokio::task::unconstrained(lock.holder());
                let mut holder = pin!(holder);
                is_pending = holder.as_mut().poll(&mut context).is_pending();
                if is_pending {
                    self.block(until);
                }
            }
        }
        self.block(until);
    }

    /// Resumes all halted threads.
    pub(crate) fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    fn block(&self, until: Instant) {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self
            .ended
            .wait_timeout_while(is_over, left, |is_over| !*is_over);
        drop(waited);
    }
}

impl Wake for Halt {
    fn wake(self: Arc<Self>) {
        self.pauses.block(self.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halted_client_loses_its_lease_and_others_take_the_lock() {
        let ttl = Duration::from_millis(200);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let (a, b) = ("memory://halted", "memory://halted");
            let a = tenure::Tenure::connect(a).await.unwrap();
            let b = tenure::Tenure::connect(b).await.unwrap();
            let lock = a.as_locks().lock("stock").ttl(ttl);
            let guard = lock.acquire().await.unwrap();
            Arc::<Pauses>::default().halt(Some(&lock), ttl * 2);
            assert!(!guard.is_valid());
            let other = b.lock("stock").acquire().await.unwrap();
            assert!(other.fence() > guard.fence());
        });
    }
}
