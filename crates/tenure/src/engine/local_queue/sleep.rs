//! How the queue task sleeps: until a message, the end of the holder's lease, or a waiter's limit.

use std::sync::Arc;
use std::time::Duration;

use super::QueueMessage;
use super::task::{First, QueueTask, Subscription};
use crate::engine::client_record;
use crate::engine::current_holder::CurrentHolder;
use crate::moment::Moment;

/// How often to poll if the server refuses the subscription.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long after the end of a lease a waiter far back in the queue polls: those ahead go first,
/// and not all poll at once.
const FAR_BEHIND_DELAY_MIN: Duration = Duration::from_millis(20);
const FAR_BEHIND_DELAY_SPREAD: Duration = Duration::from_millis(200);

impl QueueTask {
    /// Sleeps until there is a reason to try again or to stop.
    pub(super) async fn sleep(&mut self, first: &First) {
        let mut wake_at = self.next_poll_at();
        loop {
            if let Some(offer) = self.wakeups.offered_to_other.take() {
                // If that waiter has died, no message will tell us.
                let mut ends = offer + jitter(offer / 10);
                if self.queue.waiters().is_far_behind() {
                    ends += FAR_BEHIND_DELAY_MIN + jitter(FAR_BEHIND_DELAY_SPREAD);
                }
                wake_at = wake_at.min(self.now() + ends);
            }
            let now = self.now();
            let timed_out = first.limit.is_some_and(|limit| now >= limit);
            if self.wakeups.retry || self.closed || timed_out || !self.is_first(first) {
                return;
            }
            if now >= wake_at {
                match self.subscription {
                    Subscription::Refused => self.core.stats.woken_by_poll(),
                    Subscription::NotSubscribed | Subscription::Subscribed => {
                        self.core.stats.woken_by_timer();
                    }
                }
                if !self.is_still_far_behind(first).await {
                    return;
                }
                wake_at = self.next_poll_at();
                continue;
            }
            let holder = self.holder.as_ref();
            let look_up_at = holder.and_then(|holder| holder.look_up_at(first.limit));
            if look_up_at.is_some_and(|at| now >= at) {
                self.look_up_holder(first).await;
                continue;
            }
            let mut until = look_up_at.map_or(wake_at, |at| at.min(wake_at));
            until = first.limit.map_or(until, |limit| limit.min(until));
            self.handle_next_message(until).await;
        }
    }

    /// When to poll the lock if no message comes.
    pub(super) fn next_poll_at(&self) -> Moment {
        let is_far_behind = self.queue.waiters().is_far_behind();
        let interval = self.holder.as_ref().map(|holder| {
            if is_far_behind {
                holder.poll_after_far_behind()
                    + FAR_BEHIND_DELAY_MIN
                    + jitter(FAR_BEHIND_DELAY_SPREAD)
            } else {
                holder.poll_after()
            }
        });
        let interval = interval.unwrap_or_default();
        self.now()
            + match self.subscription {
                Subscription::Refused => interval.min(POLL_INTERVAL + jitter(POLL_INTERVAL)),
                Subscription::NotSubscribed | Subscription::Subscribed => interval,
            }
    }

    /// Whether the lock is still held and so many waiters are ahead that polling is their job. A
    /// waiter that is known to be near the head, or that sees that the lease has expired, tries
    /// again instead.
    pub(super) async fn is_still_far_behind(&mut self, first: &First) -> bool {
        let place = {
            let waiters = self.queue.waiters();
            let place = waiters
                .queued_as
                .clone()
                .filter(|_| !waiters.is_near_head());
            let over = |holder: &CurrentHolder| holder.has_expired(self.now());
            let asks = !waiters.is_far_behind() && self.holder.as_ref().is_none_or(over);
            place.filter(|_| self.subscription == Subscription::Subscribed && !asks)
        };
        let Some(place) = place else { return false };
        let (core, name) = (Arc::clone(&self.core), self.name.clone());
        let limit = self.attempt_deadline(first);
        let looking = async move { core.store.queue_position(&name, &place, limit).await };
        let queue_position = self.while_handling_messages(looking).await.ok().flatten();
        if self.wakeups.retry {
            // A message newer than this reply has arrived.
            return false;
        }
        let now = self.now();
        if let (Some(holder), Some(queue_position)) = (&mut self.holder, &queue_position) {
            holder.set_remaining(queue_position.remaining, now);
        }
        let mut waiters = self.queue.waiters();
        waiters.set_ahead(queue_position.map(|queue_position| queue_position.ahead));
        waiters.is_far_behind()
    }

    /// Looks up the holder's client record, so that an error can name it.
    pub(super) async fn look_up_holder(&mut self, first: &First) {
        let now = self.now();
        let holder = self.holder.as_mut();
        let client = holder.and_then(|holder| holder.begin_look_up(now));
        let Some(client) = client else { return };
        let (core, limit) = (Arc::clone(&self.core), self.attempt_deadline(first));
        let looking = async move { client_record::read(&core, Some(client), limit).await };
        let records = self.while_handling_messages(looking).await;
        if let (Some(holder), Ok(records)) = (&mut self.holder, records) {
            holder.set_client(records.into_iter().next());
        }
    }

    pub(super) async fn pause_until(&mut self, until: Moment, first: &First) {
        let until = until.min(self.gives_up_at(first));
        let clock = self.core.clock.clone();
        let rested = async move { clock.sleep_until(until).await };
        self.while_handling_messages(rested).await;
    }

    /// Runs `work` and handles messages meanwhile, so that no waiter's limit has to wait for it.
    pub(super) async fn while_handling_messages<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let never = self.now() + Duration::from_secs(24 * 60 * 60);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.handle_next_message(never) => {}
            }
        }
    }

    /// Handles the next message, if one comes in time.
    pub(super) async fn handle_next_message(&mut self, until: Moment) {
        if let Some(message) = self.next_message(until).await {
            self.handle(message);
        }
    }

    /// The next message, if one comes in time. Expires waiters whose limit passes meanwhile.
    pub(super) async fn next_message(&mut self, until: Moment) -> Option<QueueMessage> {
        loop {
            let now = self.now();
            self.expire_waiters(now);
            if now >= until {
                return None;
            }
            let wake_at = self.wake_at(until);
            let clock = self.core.clock.clone();
            tokio::select! {
                biased;
                message = self.inbox.recv() => return message,
                () = clock.sleep_until(wake_at) => {}
            }
        }
    }

    /// When to wake up without a message: at the next limit at the latest. A caller that joins with
    /// an earlier limit sends a message.
    pub(super) fn wake_at(&self, until: Moment) -> Moment {
        let mut waiters = self.queue.waiters();
        let next_deadline = waiters.next_deadline(self.served).unwrap_or(until);
        let wake_at = next_deadline.min(until);
        let is_serving = self.served.is_some();
        waiters.wakes_at = is_serving.then_some(wake_at);
        wake_at
    }

    /// Expires waiters whose limit has passed, except the one that is being served.
    pub(super) fn expire_waiters(&mut self, now: Moment) {
        loop {
            let waiter = self.queue.waiters().take_expired(now, self.served);
            let Some(waiter) = waiter else { return };
            let error = self.timed_out(waiter.joined, now);
            self.core.record_changed.notify_one();
            waiter.caller.fail(error);
        }
    }
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}
