//! What the queue task does when a message arrives.

use std::time::Duration;

use super::QueueMessage;
use super::task::QueueTask;
use crate::engine::current_holder::CurrentHolder;
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::seeded::{Bug, bug};
use crate::store::{Busy, offer_duration};

/// How long the head of our queue leaves a free lock to waiters outside the queue. Enough for them
/// to get the message and try; short enough that the lock is not idle for long if they do not.
const OTHERS_HEAD_START: Duration = Duration::from_millis(10);

impl QueueTask {
    pub(super) fn handle(&mut self, message: QueueMessage) {
        match message {
            QueueMessage::Joined | QueueMessage::Left => {}
            QueueMessage::Close => self.closed = true,
            QueueMessage::Retry | QueueMessage::LeftStoreQueue => {
                // The lock may have changed hands several times meanwhile.
                self.queue.waiters().set_ahead(None);
                self.wakeups.retry = true;
            }
            QueueMessage::LostStorePlace(place) => {
                let mut waiters = self.queue.waiters();
                if waiters.queued() == Some(&place) && !bug(Bug::LostPlaceIgnored) {
                    waiters.is_queued = false;
                    waiters.set_ahead(None);
                    drop(waiters);
                    self.wakeups.retry = true;
                }
            }
            QueueMessage::ShortOffer(lasts) => {
                self.wakeups.offered_to_other = Some(lasts);
                let now = self.now();
                if let Some(holder) = &mut self.holder {
                    holder.set_remaining(lasts, now);
                }
            }
            QueueMessage::Offered(to, _) if to.is_phase() && self.serves_reader() => {
                self.core.stats.woken_by_message();
                self.wakeups.retry = true;
            }
            QueueMessage::Offered(to, grant) => {
                let ours = self.queue.waiters().queued_as.as_ref() == Some(&to);
                self.note_idle(ours);
                if ours {
                    self.core.stats.woken_by_message();
                    self.wakeups.retry = true;
                    self.wakeups.granted = grant.map(|grant| (to, grant));
                } else {
                    self.queue.waiters().advance();
                    let offer = offer_duration(&to);
                    self.wakeups.offered_to_other = Some(offer);
                    self.note_next_holder(to, offer);
                }
            }
            QueueMessage::Opened(None) => {
                self.note_idle(true);
                if self.served.is_some() {
                    self.core.stats.woken_by_message();
                }
                self.wakeups.retry = true;
            }
            QueueMessage::Opened(Some(next)) => {
                let ours = self.queue.waiters().queued_as.as_ref() == Some(&next);
                self.note_idle(ours);
                let pause_until = if ours {
                    OTHERS_HEAD_START
                } else {
                    offer_duration(&next)
                };
                self.wakeups.offered_to_other = Some(pause_until);
            }
        }
    }

    /// Whether the first waiter wants to share the lock.
    fn serves_reader(&self) -> bool {
        let waiters = self.queue.waiters();
        let first = waiters.first();
        first.is_some_and(|(_, waiter)| waiter.request.mode == Mode::Shared)
    }

    /// Notes who gets the lock next. A waiter far back in the queue learns it only this way.
    pub(super) fn note_next_holder(&mut self, holder: LeaseId, offer: Duration) {
        let now = self.now();
        let busy = Busy {
            holder,
            remaining: Some(offer),
            ask_after: None,
        };
        CurrentHolder::update(&mut self.holder, busy, now);
    }

    /// Notes that the lock was released, to us or to another process. Only for the timings.
    pub(super) fn note_idle(&self, ours: bool) {
        if !self.core.stats.timings.is_wanted() {
            return;
        }
        let mut waiters = self.queue.waiters();
        let ours = ours && waiters.len() > 0;
        // A release of our own began before its message came back.
        let since = waiters.idle_since.unwrap_or_else(|| self.now());
        waiters.idle_since = ours.then_some(since);
    }
}
