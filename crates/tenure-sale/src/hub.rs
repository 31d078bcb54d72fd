//! The hub: tells those who wait in this process what became of their orders.
//!
//! It is a wake-up and no truth: whoever waits also asks the ledger now and then.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::order::{OrderId, OrderState};

/// So many orders are remembered for those who come a moment too late. A caller is late by the time
/// between the gate's answer and its next step, in which no more than a few batches are committed.
const RECENT_MAX: usize = 8192;

#[derive(Debug, Default)]
pub(crate) struct Hub {
    // A std mutex, not an async one: nobody waits while it is held.
    state: Mutex<State>,
    /// Whether recent orders are remembered.
    remembers: bool,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<OrderId, Vec<oneshot::Sender<OrderState>>>,
    /// How many orders of an item are waited for. Asked often, and not counted anew each time.
    waiting_of: HashMap<String, usize>,
    recent: HashMap<OrderId, OrderState>,
    /// Their order, for forgetting the oldest.
    recent_in_order: VecDeque<OrderId>,
}

/// Waits for one piece of news of one order.
pub(crate) struct Hearing<'a> {
    hub: &'a Hub,
    order: &'a OrderId,
    news: oneshot::Receiver<OrderState>,
}

impl Hub {
    /// A hub that tells latecomers what it told before.
    pub(crate) fn that_remembers() -> Self {
        Self {
            remembers: true,
            ..Self::default()
        }
    }

    /// Begins to listen for news of `order`, also for what was told a moment ago.
    pub(crate) fn hear<'a>(&'a self, order: &'a OrderId) -> Hearing<'a> {
        let (sender, news) = oneshot::channel();
        let mut state = self.state();
        if let Some(recent) = state.recent.get(order) {
            // The receiver is in our hands.
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

    /// Begins to listen for what will be told of `order` from now on.
    pub(crate) fn hear_next<'a>(&'a self, order: &'a OrderId) -> Hearing<'a> {
        let (sender, news) = oneshot::channel();
        self.state().await_news(order, sender);
        Hearing {
            hub: self,
            order,
            news,
        }
    }

    /// Tells what became of orders.
    pub(crate) fn tell<'a>(&self, news: impl IntoIterator<Item = (&'a OrderId, OrderState)>) {
        let mut state = self.state();
        if !self.remembers && state.waiting.is_empty() {
            return;
        }
        for (order, became) in news {
            for waiter in state.nobody_waits(order) {
                // Who no longer waits need not be told.
                let _ = waiter.send(became);
            }
            if self.remembers {
                state.remember(order, became);
            }
        }
    }

    /// Whether somebody waits for news of an order of `item`.
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

    /// Those who waited for `order`.
    fn nobody_waits(&mut self, order: &OrderId) -> Vec<oneshot::Sender<OrderState>> {
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
    /// The next news, once. Never resolves after that.
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
                state.nobody_waits(self.order);
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
