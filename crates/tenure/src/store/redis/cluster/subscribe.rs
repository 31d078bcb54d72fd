//! Hearing each channel where its lock is, though that changes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Cluster, Slot};
use crate::moment::Moment;
use crate::store::Event;

/// How long to wait before the next attempt to hear what could not be heard.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Sees to it that every channel is heard where its lock is, for as long as the engine runs.
pub(super) async fn keep_subscribed(cluster: Arc<Cluster>) {
    loop {
        cluster.channels.wait_for_recheck().await;
        while !cluster.resubscribe_all().await {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Cluster {
    /// False if something could not be heard, but may be later.
    async fn resubscribe_all(&self) -> bool {
        let owner = |channel: &str| {
            let owner = self.owner(Slot::of(channel.as_bytes()));
            owner.map(|node| node.wakes.number())
        };
        let misplaced = self
            .channels
            .misplaced(|channel, heard_by| heard_by.is_some() && heard_by == owner(channel));
        // One that does not answer must not be waited for once for each channel.
        let mut silent = HashSet::new();
        for channel in misplaced {
            let at = owner(&channel);
            if !silent.contains(&at) && !self.resubscribe(&channel).await {
                silent.insert(at);
            }
        }
        silent.is_empty()
    }

    /// Hears a channel where its slot is now. Whoever waits there may have missed something.
    async fn resubscribe(&self, channel: &str) -> bool {
        let limit = self.clock.now() + LIMIT;
        let Ok(mut route) = self.route(channel) else {
            return false;
        };
        let mut before = None;
        let node = loop {
            let number = route.node.wakes.number();
            // Before it is asked: it may say that the slot has left right behind its confirmation,
            // and that must not be taken for news of an earlier time.
            let Ok(heard_by) = self.channels.set_listener(channel, number) else {
                return true;
            };
            before = before.or(heard_by).filter(|it| *it != number);
            match route.node.wakes.subscribe_channel(channel, limit).await {
                Ok(()) => break route.node,
                Err(failure) => {
                    self.channels.clear_listener(channel, number);
                    let node = Arc::clone(&route.node);
                    match self.next_route(channel, route, failure, limit).await {
                        Ok(next) => route = next,
                        Err(failure) if failure.transient => return false,
                        // Nor will it be later: those who wait look again by themselves.
                        Err(_) => break node,
                    }
                }
            }
        };
        let Some(name) = self.channels.name_of(channel) else {
            // They have left meanwhile.
            node.wakes.unsubscribe_channel(channel, limit).await;
            return true;
        };
        self.unsubscribe_old(before, channel, limit).await;
        if let Some(events) = self.events.get() {
            // Nobody hears it when the client is closing.
            let _ = events.send(Event::MessagesLostFor { name });
        }
        true
    }

    /// Messages for all who listen come from every node: twice, if two were listened to.
    async fn unsubscribe_old(&self, listener: Option<u64>, channel: &str, limit: Moment) {
        let nodes = self.nodes();
        let node = nodes
            .iter()
            .find(|node| !self.sharded && Some(node.wakes.number()) == listener);
        if let Some(node) = node {
            node.wakes.unsubscribe_channel(channel, limit).await;
        }
    }
}
