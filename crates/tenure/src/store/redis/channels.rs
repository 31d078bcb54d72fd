//! The channels that waiters need, and which listener is subscribed to each.
//!
//! One list for all nodes of a store: in a cluster, a channel must be subscribed where its lock is,
//! and that changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::keys::Keys;
use super::layout::Topic;
use super::told_offer::ToldOffer;
use crate::layout::Layout;
use crate::lease::ClientId;
use crate::name::LockName;
use crate::store::{Event, NeedsMessages, OfferedGrant};

#[derive(Default)]
pub(super) struct Channels {
    known: Mutex<HashMap<String, Channel>>,
    /// A channel may have no subscription, or one on the wrong node.
    recheck: Notify,
    /// Tells whether a caller would be delayed without messages.
    needs_messages: OnceLock<NeedsMessages>,
    /// The client that has channels of its own, next to those of all waiters.
    own: OnceLock<ClientId>,
}

/// A channel, and how many local queues use it.
struct Channel {
    name: LockName,
    topic: Topic,
    uses: usize,
    /// The number of the listener that is subscribed to it.
    listener_number: Option<u64>,
}

/// No queue uses the channel any more.
pub(super) struct Unneeded;

impl Channels {
    /// Sets how to find out whether messages are needed.
    pub(super) fn set_needs_messages(&self, needs_messages: NeedsMessages) {
        // A store is started once.
        let _ = self.needs_messages.set(needs_messages);
    }

    /// Gives the client channels of its own.
    pub(super) fn set_own(&self, client: ClientId) {
        // A store is started once.
        let _ = self.own.set(client);
    }

    /// The channels for waiters of a lock.
    pub(super) fn of_lock(&self, keys: &Keys, name: &LockName) -> Vec<(String, Topic)> {
        let mut channels = keys.channels(name);
        if let (Some(client), Layout::Native) = (self.own.get(), keys.layout) {
            let own = format!("{}:{client}", keys.wake_channel(name));
            channels.push((own, Topic::Turn));
        }
        channels
    }

    /// Whether a caller would be delayed without messages. True until the store is started.
    pub(super) fn needs_messages(&self) -> bool {
        self.needs_messages
            .get()
            .is_none_or(|needs_messages| needs_messages())
    }

    /// Adds one use of a channel that this listener is about to subscribe to.
    pub(super) fn add(&self, channel: &str, name: &LockName, topic: Topic, listener: u64) {
        let mut known = self.known();
        let channel = known.entry(channel.to_owned()).or_insert_with(|| Channel {
            name: name.clone(),
            topic,
            uses: 0,
            listener_number: None,
        });
        channel.uses += 1;
        channel.listener_number = Some(listener);
    }

    /// Removes one use of a channel. If it was the last, returns the listener that is still
    /// subscribed.
    pub(super) fn remove(&self, channel: &str) -> Option<u64> {
        let mut known = self.known();
        let uses = &mut known.get_mut(channel)?.uses;
        *uses -= 1;
        if *uses > 0 {
            return None;
        }
        known.remove(channel)?.listener_number
    }

    /// What a message on a channel means, if anything; `to_grant` says what an offer is worth.
    pub(super) fn event(
        &self,
        channel: &str,
        message: &str,
        to_grant: impl FnOnce(ToldOffer) -> Option<OfferedGrant>,
    ) -> Option<Event> {
        let (topic, name) = {
            let known = self.known();
            let channel = known.get(channel)?;
            (channel.topic, channel.name.clone())
        };
        topic.event(name, message, to_grant)
    }

    /// The channels of this listener.
    pub(super) fn channels_of(&self, listener: u64) -> Vec<String> {
        self.misplaced(|_, listener_number| listener_number != Some(listener))
    }

    /// The channels for which `right` is false.
    pub(super) fn misplaced(&self, right: impl Fn(&str, Option<u64>) -> bool) -> Vec<String> {
        let known = self.known();
        let wrong = known
            .iter()
            .filter(|(channel, it)| !right(channel, it.listener_number));
        wrong.map(|(channel, _)| channel.clone()).collect()
    }

    /// Notes that a listener has lost a subscription.
    pub(super) fn subscription_lost(&self, channel: &str, listener: u64) {
        self.clear_listener(channel, listener);
        self.recheck();
    }

    /// Notes that a listener is not subscribed to a channel.
    pub(super) fn clear_listener(&self, channel: &str, listener: u64) {
        if let Some(channel) = self.known().get_mut(channel)
            && channel.listener_number == Some(listener)
        {
            channel.listener_number = None;
        }
    }

    /// Notes that a listener is subscribed from now on. Returns the previous one.
    pub(super) fn set_listener(
        &self,
        channel: &str,
        listener: u64,
    ) -> Result<Option<u64>, Unneeded> {
        let mut known = self.known();
        let channel = known.get_mut(channel).ok_or(Unneeded)?;
        Ok(channel.listener_number.replace(listener))
    }

    /// The lock of a channel; `None` if it is no longer used.
    pub(super) fn name_of(&self, channel: &str) -> Option<LockName> {
        let known = self.known();
        known.get(channel).map(|channel| channel.name.clone())
    }

    /// Some subscriptions may be missing or misplaced.
    pub(super) fn recheck(&self) {
        self.recheck.notify_one();
    }

    /// Waits for [`recheck`](Channels::recheck).
    pub(super) async fn wait_for_recheck(&self) {
        self.recheck.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
