//! Standing still: what a process does while it is stopped, swapped out or collects garbage.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use tenure::Lock;

/// Where threads stand still, until their time is over or the run is.
#[derive(Debug, Default)]
pub(crate) struct Stillness {
    is_over: Mutex<bool>,
    bell: Condvar,
}

/// Halts whichever thread wakes it.
struct Halt {
    stillness: Arc<Stillness>,
    until: Instant,
}

impl Stillness {
    /// Halts an instance with everything in it: this thread, which drives its runtime, and the thread
    /// that its client renews leases on. Nothing of it does anything until `until`.
    pub(crate) fn halt(self: &Arc<Self>, lock: Option<&Lock>, length: Duration) {
        let until = Instant::now() + length;
        // The client's thread answers by waking whoever asked: it is halted there, between two steps.
        let halt = Arc::new(Halt {
            stillness: Arc::clone(self),
            until,
        });
        let waker = Waker::from(halt);
        let mut context = Context::from_waker(&waker);
        if let Some(lock) = lock {
            // An answer that is there already wakes nobody; the next one hardly is.
            let mut is_asked = false;
            while !is_asked && Instant::now() < until {
                let asking = tokio::task::unconstrained(lock.holder());
                let mut asking = pin!(asking);
                is_asked = asking.as_mut().poll(&mut context).is_pending();
                if is_asked {
                    self.stand(until);
                }
            }
        }
        self.stand(until);
    }

    /// Nobody stands still any more.
    pub(crate) fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }

    fn stand(&self, until: Instant) {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let stood = self
            .bell
            .wait_timeout_while(is_over, left, |is_over| !*is_over);
        drop(stood);
    }
}

impl Wake for Halt {
    fn wake(self: Arc<Self>) {
        self.stillness.stand(self.until);
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
            let lock = a.lock("stock").ttl(ttl);
            let guard = lock.acquire().await.unwrap();
            Arc::<Stillness>::default().halt(Some(&lock), ttl * 2);
            assert!(!guard.is_valid());
            let other = b.lock("stock").acquire().await.unwrap();
            assert!(other.fence() > guard.fence());
        });
    }
}
