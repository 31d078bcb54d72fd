//! The follower: one reader of ledger and gate per item, for everything in this process that
//! depends on it.
//!
//! That is the watchers of [`Events`](super::Events), callers that wait for an order, and the
//! orders that this process saw accepted but not yet committed: if their epoch has ended and they
//! are not in the ledger, they are lost, and must be reported even if no caller waits for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::core::Core;
use crate::entry::Lost;
use crate::error::Result;
use crate::ledger::{Change, What};
use crate::lost;
use crate::order::{Order, OrderId, OrderState, Request};

use super::followers::{Follower, Followers, Left, Live, State};

/// Events kept for slow watchers; they fetch older ones themselves.
const LIVE_MAX: usize = 256;
/// Awaited orders of one item. The queue's default limit is somewhat higher, but in a queue that
/// long nearly all orders are from other processes.
const AWAITED_MAX: usize = 50_000;
const PAGE: usize = 200;
/// Between two reads while there are waiters or watchers.
const TICK: Duration = Duration::from_millis(50);
/// Between two reads while orders are awaited without a waiting caller.
const SLOW_TICK: Duration = Duration::from_millis(200);
/// Units left are reported at most this often.
const LEFT_EVERY: Duration = Duration::from_millis(100);
/// How often to check for awaited orders that are lost or were skipped.
const AUDIT_EVERY: Duration = Duration::from_secs(1);
/// Awaited orders checked in one audit, which only matters if changes were skipped. After some that
/// are not in the ledger either, the others are mostly behind them in the same queue.
const AUDIT_MAX: usize = 50;
const AUDIT_MISSES_MAX: usize = 5;
/// A follower that is not needed for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(5);

impl Followers {
    /// Remembers an accepted order until it is in the ledger or lost.
    pub(crate) fn expect(core: &Arc<Core>, order: &OrderId, request: &Request) {
        let request = request.clone();
        let mut running = core.followers.running();
        let follower = Self::follower(core, &mut running, order.item());
        let mut state = follower.state();
        state
            .awaited
            .insert((order.epoch(), order.number()), request);
        if state.awaited.len() > AWAITED_MAX {
            state.awaited.pop_first();
        }
    }

    /// Makes sure that the hub is notified of orders of `item`.
    pub(crate) fn listen(core: &Arc<Core>, item: &str) {
        Self::follower(core, &mut core.followers.running(), item);
    }

    /// Starts to watch. Also returns the last reported number of units left.
    pub(super) fn watch(core: &Arc<Core>, item: &str) -> (broadcast::Receiver<Live>, Option<Left>) {
        let mut running = core.followers.running();
        let follower = Self::follower(core, &mut running, item);
        let live = follower.live.subscribe();
        let left = follower.state().left;
        (live, left)
    }

    /// A consumer of this process has settled these: no need to wait for the ledger's changes.
    pub(crate) fn settled(&self, item: &str, news: &[(&OrderId, OrderState)]) {
        let follower = self.running().get(item).map(Arc::clone);
        if let Some(follower) = follower {
            follower.forget(news.iter().map(|(order, _)| *order));
        }
    }

    fn follower(
        core: &Arc<Core>,
        running: &mut HashMap<String, Arc<Follower>>,
        item: &str,
    ) -> Arc<Follower> {
        if let Some(follower) = running.get(item) {
            return Arc::clone(follower);
        }
        let follower = Arc::new(Follower {
            item: item.to_owned(),
            live: broadcast::Sender::new(LIVE_MAX),
            state: Mutex::default(),
        });
        running.insert(item.to_owned(), Arc::clone(&follower));
        let (core, gone) = (Arc::clone(core), core.gone.clone());
        let following = follow(core, Arc::clone(&follower));
        tokio::spawn(async move { gone.run_until_cancelled(following).await });
        follower
    }
}

impl Follower {
    fn is_watched(&self) -> bool {
        self.live.receiver_count() > 0
    }

    fn is_needed(&self, core: &Core) -> bool {
        self.is_watched() || !self.state().awaited.is_empty() || core.hub.awaits(&self.item)
    }

    fn forget<'a>(&self, orders: impl IntoIterator<Item = &'a OrderId>) {
        let mut state = self.state();
        for order in orders {
            state.awaited.remove(&(order.epoch(), order.number()));
        }
    }

    /// Passes a change on to all subscribers.
    fn pass_on(&self, core: &Core, change: Change) {
        match &change.what {
            What::Committed { orders, state } => {
                self.forget(orders);
                core.hub.tell(orders.iter().map(|order| (order, *state)));
            }
            What::Moved { order, state }
            | What::Released { order, state, .. }
            | What::Refused { order, state, .. } => {
                self.forget([order]);
                core.hub.tell([(order, *state)]);
            }
            _ => {}
        }
        if self.is_watched() {
            // The last watcher may have left.
            let _ = self.live.send(Live::Change(Arc::new(change)));
        }
    }

    async fn look_at_gate(&self, core: &Core) -> Result<()> {
        let standing = core.gate.standing(&self.item).await?;
        let Some(left) = standing.map(|standing| Left(standing.left)) else {
            return Ok(());
        };
        let told = self.state().left.replace(left);
        if told != Some(left) {
            // The last watcher may have left.
            let _ = self.live.send(Live::Left(left));
        }
        Ok(())
    }

    /// Checks for awaited orders that will never arrive, and for those that arrived unseen.
    async fn audit(&self, core: &Core) -> Result<()> {
        if self.state().awaited.is_empty() {
            return Ok(());
        }
        let item = core.item(&self.item).await?;
        let shelves = core.gate.shelves_of(&item).max(1);
        let (over, oldest) = self.to_audit(item.epoch, shelves);
        for (order, request) in over {
            match core.ledger.order(&order).await? {
                Some(known) if !is_nobodys(&known) => core.hub.tell([(&order, known.state)]),
                _ => {
                    let lost = Lost::of(&order, &request);
                    lost::announce(core, &self.item, order.epoch(), &[lost]).await?;
                }
            }
            self.forget([&order]);
        }
        let mut misses: HashMap<u64, usize> = HashMap::new();
        for order in oldest {
            let misses = misses.entry(order.number() % shelves).or_default();
            if *misses == AUDIT_MISSES_MAX {
                continue;
            }
            if let Some(known) = core.ledger.order(&order).await? {
                core.hub.tell([(&order, known.state)]);
                self.forget([&order]);
            } else {
                *misses += 1;
            }
        }
        Ok(())
    }

    /// Awaited orders of ended epochs, and the oldest of the current one in each of this many
    /// queues.
    fn to_audit(&self, epoch: u64, shelves: u64) -> (Vec<(OrderId, Request)>, Vec<OrderId>) {
        let state = self.state();
        let order = |(epoch, number): &(u64, u64)| OrderId::new(&*self.item, *epoch, *number);
        let over = state.awaited.range(..(epoch, 0));
        let over = over.map(|(key, request)| (order(key), request.clone()));
        let over = over.collect();
        let most = usize::try_from(shelves).map_or(0, |shelves| AUDIT_MAX / shelves);
        let most = most.max(AUDIT_MISSES_MAX);
        let mut taken: HashMap<u64, usize> = HashMap::new();
        let of_this = state.awaited.range((epoch, 0)..).map(|(key, _)| key);
        let oldest = of_this.filter(|(_, number)| {
            let taken = taken.entry(number % shelves).or_default();
            *taken += 1;
            *taken <= most
        });
        (over, oldest.map(order).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it was found to be lost when nobody knew whose it was.
fn is_nobodys(order: &Order) -> bool {
    order.state == OrderState::Lost && order.buyer.is_empty()
}

/// Follows an item until it is no longer needed.
async fn follow(core: Arc<Core>, follower: Arc<Follower>) {
    let mut cursor = None;
    let (mut looks_at, mut audits_at) = (Instant::now(), Instant::now() + AUDIT_EVERY);
    let mut needed_at = Instant::now();
    loop {
        let full_page = match next_page(&core, &follower, &mut cursor).await {
            Ok(full_page) => full_page,
            Err(error) => {
                debug!(item = follower.item, %error, "events wait for the ledger");
                sleep(AUDIT_EVERY).await;
                false
            }
        };
        let now = Instant::now();
        if follower.is_watched() && now >= looks_at {
            looks_at = now + LEFT_EVERY;
            // An unavailable gate has nothing new.
            let _ = follower.look_at_gate(&core).await;
        }
        if now >= audits_at {
            audits_at = now + AUDIT_EVERY;
            // Orders that are not found are checked again later.
            let _ = follower.audit(&core).await;
        }
        if follower.is_needed(&core) {
            needed_at = now;
        } else if now >= needed_at + IDLE_MAX && ends(&core, &follower) {
            return;
        }
        if !full_page {
            let eager = follower.is_watched() || core.hub.awaits(&follower.item);
            sleep(if eager { TICK } else { SLOW_TICK }).await;
        }
    }
}

/// Passes on the next changes; returns whether there may be more right away.
async fn next_page(core: &Core, follower: &Follower, cursor: &mut Option<u64>) -> Result<bool> {
    let after = match *cursor {
        Some(after) => after,
        None => *cursor.insert(core.item(&follower.item).await?.change),
    };
    let changes = core.ledger.changes(&follower.item, after, PAGE).await?;
    let full_page = changes.len() == PAGE;
    for change in changes {
        *cursor = Some(change.number);
        follower.pass_on(core, change);
    }
    Ok(full_page)
}

/// Ends it, unless it is needed again.
fn ends(core: &Core, follower: &Follower) -> bool {
    let mut running = core.followers.running();
    if follower.is_needed(core) {
        return false;
    }
    running.remove(&follower.item);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_its_oldest_audited() {
        let follower = Follower {
            item: "sku".to_owned(),
            live: broadcast::Sender::new(1),
            state: Mutex::default(),
        };
        // The entries of shelf 0 are much older than the others.
        let numbers = (1..500).map(|n| n * 2).chain([2001, 2003]);
        let request = Request::new("sku", "anna", "r").unwrap();
        let awaited = numbers.map(|number| (2, number)).chain([(1, 7)]);
        let awaited = awaited.map(|key| (key, request.clone()));
        follower.state().awaited.extend(awaited);
        let (over, oldest) = follower.to_audit(2, 2);
        assert_eq!(over, [(OrderId::new("sku", 1, 7), request)]);
        let (first, second): (Vec<_>, Vec<_>) = oldest
            .iter()
            .map(OrderId::number)
            .partition(|number| number % 2 == 0);
        assert_eq!(first.len(), AUDIT_MAX / 2);
        assert_eq!(second, [2001, 2003]);
        // Within one queue the order is by age.
        let (_, oldest) = follower.to_audit(2, 1);
        assert_eq!(oldest.len(), AUDIT_MAX);
    }
}
