//! Keeps each channel subscribed on the node that has its lock, although that changes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Cluster, Slot};
use crate::backoff::CONNECT_PAUSE;
use crate::moment::Moment;
use crate::store::Event;

/// How long one attempt may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Keeps every channel subscribed on the right node, as long as the engine runs.
pub(super) async fn keep_subscribed(cluster: Arc<Cluster>) {
    loop {
        cluster.channels.wait_for_recheck().await;
        while !cluster.resubscribe_all().await {
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }
}

impl Cluster {
    /// False if a subscription failed but may succeed later.
    async fn resubscribe_all(&self) -> bool {
        let owner = |channel: &str| {
            let owner = self.owner(Slot::of(channel.as_bytes()));
            owner.map(|node| node.messages.number())
        };
        let misplaced = self.channels.misplaced(|channel, listener_number| {
            listener_number.is_some() && listener_number == owner(channel)
        });
        // A node that does not reply must not be waited for once per channel.
        let mut silent = HashSet::new();
        for channel in misplaced {
            let at = owner(&channel);
            if !silent.contains(&at) && !self.resubscribe(&channel).await {
                silent.insert(at);
            }
        }
        silent.is_empty()
    }

    /// Subscribes to a channel on the node that has its slot now. Its waiters may have missed a
    /// message.
    async fn resubscribe(&self, channel: &str) -> bool {
        let limit = self.clock.now() + LIMIT;
        let Ok(mut route) = self.route(channel) else {
            return false;
        };
        let mut before = None;
        let node = loop {
            let number = route.node.messages.number();
            // Before subscribing: the node may push an unsubscribe right after its confirmation,
            // and that must not be taken for an older one.
            let Ok(listener_number) = self.channels.set_listener(channel, number) else {
                return true;
            };
            before = before.or(listener_number).filter(|it| *it != number);
            match route.node.messages.subscribe_channel(channel, limit).await {
                Ok(()) => break route.node,
                Err(failure) => {
                    self.channels.clear_listener(channel, number);
                    let node = Arc::clone(&route.node);
                    match self.next_route(channel, route, failure, limit).await {
                        Ok(next) => route = next,
                        Err(failure) if failure.transient => return false,
                        // It will not succeed later either: the waiters poll.
                        Err(_) => break node,
                    }
                }
            }
        };
        let Some(name) = self.channels.name_of(channel) else {
            // The waiters have left meanwhile.
            node.messages.unsubscribe_channel(channel, limit).await;
            return true;
        };
        self.unsubscribe_old(before, channel, limit).await;
        if let Some(events) = self.events.get() {
            // The client may be closing.
            let _ = events.send(Event::MessagesLostFor { name });
        }
        true
    }

    /// Messages to all subscribers come from every node: with two subscriptions, twice.
    async fn unsubscribe_old(&self, listener: Option<u64>, channel: &str, limit: Moment) {
        let nodes = self.nodes();
        let node = nodes
            .iter()
            .find(|node| !self.sharded && Some(node.messages.number()) == listener);
        if let Some(node) = node {
            node.messages.unsubscribe_channel(channel, limit).await;
        }
    }
}
