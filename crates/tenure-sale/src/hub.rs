//! The hub: notifies callers in this process of changes to their orders.
//!
//! It only wakes callers and is not authoritative: they also poll the ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::order::{OrderId, OrderState};

/// This many orders are remembered for callers that subscribe a moment too late. A caller is late
/// by the time between the gate's answer and its next step, in which only a few batches are
/// committed.
const RECENT_MAX: usize = 8192;

#[derive(Debug, Default)]
pub(crate) struct Hub {
    // A std mutex, not an async one: it is never held across an await.
    state: Mutex<State>,
    /// Whether recent orders are remembered.
    remembers: bool,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<OrderId, Vec<oneshot::Sender<OrderState>>>,
    /// The number of subscribers per item. Read often, so it is not recounted each time.
    waiting_of: HashMap<String, usize>,
    recent: HashMap<OrderId, OrderState>,
    /// In order, to drop the oldest.
    recent_in_order: VecDeque<OrderId>,
}

/// Waits for one notification about one order.
pub(crate) struct Hearing<'a> {
    hub: &'a Hub,
    order: &'a OrderId,
    news: oneshot::Receiver<OrderState>,
}

impl Hub {
    /// A hub that also delivers recent notifications to late subscribers.
    pub(crate) fn that_remembers() -> Self {
        Self {
            remembers: true,
            ..Self::default()
        }
    }

    /// Subscribes to notifications about `order`, including recent ones.
    pub(crate) fn hear<'a>(&'a self, order: &'a OrderId) -> Hearing<'a> {
        let (sender, news) = oneshot::channel();
        let mut state = self.state();
        if let Some(recent) = state.recent.get(order) {
            // The receiver exists here, so sending cannot fail.
            let _ = sender.send(*recent);
        } else {
            state.await_news(order, sender);
        }
        drop(state);
        Hearing {
            hub: self,
            order,
            news,
        }
    }

    /// Subscribes to future notifications about `order`.
    pub(crate) fn hear_next<'a>(&'a self, order: &'a OrderId) -> Hearing<'a> {
        let (sender, news) = oneshot::channel();
        self.state().await_news(order, sender);
        Hearing {
            hub: self,
            order,
            news,
        }
    }

    /// Notifies subscribers of the state of orders.
    pub(crate) fn tell<'a>(&self, news: impl IntoIterator<Item = (&'a OrderId, OrderState)>) {
        let mut state = self.state();
        if !self.remembers && state.waiting.is_empty() {
            return;
        }
        for (order, became) in news {
            for waiter in state.take_waiters(order) {
                // A receiver that is gone needs no notification.
                let _ = waiter.send(became);
            }
            if self.remembers {
                state.remember(order, became);
            }
        }
    }

    /// Whether an order of `item` has a subscriber.
    pub(crate) fn awaits(&self, item: &str) -> bool {
        self.state().waiting_of.contains_key(item)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn await_news(&mut self, order: &OrderId, waiter: oneshot::Sender<OrderState>) {
        let waiters = self.waiting.entry(order.clone()).or_default();
        waiters.push(waiter);
        if waiters.len() == 1 {
            *self.waiting_of.entry(order.item().to_owned()).or_default() += 1;
        }
    }

    /// The subscribers of `order`.
    fn take_waiters(&mut self, order: &OrderId) -> Vec<oneshot::Sender<OrderState>> {
        let Some(waiters) = self.waiting.remove(order) else {
            return Vec::new();
        };
        if let Some(count) = self.waiting_of.get_mut(order.item()) {
            *count -= 1;
            if *count == 0 {
                self.waiting_of.remove(order.item());
            }
        }
        waiters
    }

    fn remember(&mut self, order: &OrderId, became: OrderState) {
        if self.recent.insert(order.clone(), became).is_some() {
            return;
        }
        self.recent_in_order.push_back(order.clone());
        if self.recent_in_order.len() > RECENT_MAX
            && let Some(oldest) = self.recent_in_order.pop_front()
        {
            self.recent.remove(&oldest);
        }
    }
}

impl Hearing<'_> {
    /// The next notification, once. Never resolves after that.
    pub(crate) async fn news(&mut self) -> OrderState {
        match (&mut self.news).await {
            Ok(state) => state,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        self.news.close();
        let mut state = self.hub.state();
        if let Some(waiters) = state.waiting.get_mut(self.order) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.is_empty() {
                state.take_waiters(self.order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_listens_is_told_and_who_is_late_too() {
        let hub = Hub::that_remembers();
        let order = OrderId::new("i", 1, 1);
        let mut early = hub.hear(&order);
        hub.tell([(&order, OrderState::Reserved)]);
        assert_eq!(early.news().await, OrderState::Reserved);
        assert_eq!(hub.hear(&order).news().await, OrderState::Reserved);
    }

    #[test]
    fn who_stops_listening_leaves_nothing_behind() {
        let hub = Hub::default();
        let order = OrderId::new("i", 1, 1);
        let first = hub.hear(&order);
        let second = hub.hear(&order);
        assert!(hub.awaits("i"));
        drop(first);
        assert!(hub.awaits("i"));
        drop(second);
        assert!(!hub.awaits("i"));
        assert!(hub.state().waiting.is_empty());
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let hub = Hub::that_remembers();
        for number in 0..=RECENT_MAX as u64 {
            hub.tell([(&OrderId::new("i", 1, number), OrderState::Reserved)]);
        }
        let state = hub.state();
        assert_eq!(state.recent.len(), RECENT_MAX);
        assert_eq!(state.recent_in_order.len(), RECENT_MAX);
    }
}
