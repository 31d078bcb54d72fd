//! The buyers of a run: each comes once, and retries if it got no answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The buyers of a run.
#[derive(Debug)]
pub(crate) struct Crowd {
    // A std mutex, not an async one: no call waits while it is held.
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    buyers: u64,
    came: u64,
    /// Buyers that got no answer and will retry.
    returned: Vec<u64>,
    being_served: u64,
}

/// A buyer being served. If dropped unanswered, it returns to the crowd: its instance died or could not
/// sell.
#[derive(Debug)]
pub(crate) struct Buyer {
    pub(crate) number: u64,
    crowd: Arc<Crowd>,
    is_answered: bool,
}

impl Crowd {
    pub(crate) fn new(buyers: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                buyers,
                came: 0,
                returned: Vec::new(),
                being_served: 0,
            }),
            changed: Notify::new(),
        })
    }

    /// The next buyer. Waits while all are being served, because some may return.
    pub(crate) async fn next(self: &Arc<Self>) -> Option<Buyer> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if let Some(number) = state.next() {
                    return Some(Buyer {
                        number,
                        crowd: Arc::clone(self),
                        is_answered: false,
                    });
                }
                if state.being_served == 0 {
                    return None;
                }
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<u64> {
        let number = self.returned.pop().or_else(|| {
            let is_new = self.came < self.buyers;
            self.came += u64::from(is_new);
            is_new.then_some(self.came)
        })?;
        self.being_served += 1;
        Some(number)
    }
}

impl Buyer {
    /// Marks the buyer as answered.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Buyer {
    fn drop(&mut self) {
        let mut state = self.crowd.state();
        state.being_served -= 1;
        if !self.is_answered {
            state.returned.push(self.number);
        }
        let should_notify = !self.is_answered || state.being_served == 0;
        drop(state);
        if should_notify {
            self.crowd.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unanswered_buyer_retries() {
        let crowd = Crowd::new(2);
        let (first, second) = (crowd.next().await.unwrap(), crowd.next().await.unwrap());
        assert_eq!((first.number, second.number), (1, 2));
        let waiting = tokio::spawn({
            let crowd = Arc::clone(&crowd);
            async move {
                crowd
                    .next()
                    .await
                    .map(|buyer| (buyer.number, buyer.answered()))
            }
        });
        tokio::task::yield_now().await;
        second.answered();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.unwrap(), Some((1, ())));
        assert!(crowd.next().await.is_none());
    }
}
