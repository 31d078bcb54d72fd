//! The buyers of a run: each comes once, and again if nobody answered.

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
    /// Those who were sent away without an answer.
    returned: Vec<u64>,
    under_way: u64,
}

/// A buyer at a counter. Dropped without an answer it goes back to the crowd: its instance died, or
/// could not sell.
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
                under_way: 0,
            }),
            changed: Notify::new(),
        })
    }

    /// The next buyer. Waits while all are under way, for some may come back.
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
                if state.under_way == 0 {
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
        self.under_way += 1;
        Some(number)
    }
}

impl Buyer {
    /// It knows whether it has a unit.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Buyer {
    fn drop(&mut self) {
        let mut state = self.crowd.state();
        state.under_way -= 1;
        if !self.is_answered {
            state.returned.push(self.number);
        }
        let is_news = !self.is_answered || state.under_way == 0;
        drop(state);
        if is_news {
            self.crowd.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_was_not_answered_comes_again() {
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
