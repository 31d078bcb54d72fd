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
pub(super) async fn keep_hearing(cluster: Arc<Cluster>) {
    loop {
        cluster.channels.astray().await;
        while !cluster.hear_all().await {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Cluster {
    /// False if something could not be heard, but may be later.
    async fn hear_all(&self) -> bool {
        let owner = |channel: &str| {
            let owner = self.owner(Slot::of(channel.as_bytes()));
            owner.map(|node| node.wakes.number())
        };
        let astray = self
            .channels
            .not_right(|channel, heard_by| heard_by.is_some() && heard_by == owner(channel));
        // One that does not answer must not be waited for once for each channel.
        let mut silent = HashSet::new();
        for channel in astray {
            let at = owner(&channel);
            if !silent.contains(&at) && !self.hear(&channel).await {
                silent.insert(at);
            }
        }
        silent.is_empty()
    }

    /// Hears a channel where its slot is now. Whoever waits there may have missed something.
    async fn hear(&self, channel: &str) -> bool {
        let limit = self.clock.now() + LIMIT;
        let Ok(mut way) = self.way(channel) else {
            return false;
        };
        let mut before = None;
        let node = loop {
            let number = way.node.wakes.number();
            // Before it is asked: it may say that the slot has left right behind its confirmation,
            // and that must not be taken for news of an earlier time.
            let Ok(heard_by) = self.channels.heard(channel, number) else {
                return true;
            };
            before = before.or(heard_by).filter(|it| *it != number);
            match way.node.wakes.hear(channel, limit).await {
                Ok(()) => break way.node,
                Err(failure) => {
                    self.channels.not_heard(channel, number);
                    let node = Arc::clone(&way.node);
                    match self.onward(channel, way, failure, limit).await {
                        Ok(next) => way = next,
                        Err(failure) if failure.transient => return false,
                        // Nor will it be later: those who wait look again by themselves.
                        Err(_) => break node,
                    }
                }
            }
        };
        let Some(name) = self.channels.name_of(channel) else {
            // They have left meanwhile.
            node.wakes.hear_no_more(channel, limit).await;
            return true;
        };
        self.hear_no_more(before, channel, limit).await;
        if let Some(events) = self.events.get() {
            // Nobody hears it when the client is closing.
            let _ = events.send(Event::MissedOf { name });
        }
        true
    }

    /// Messages for all who listen come from every node: twice, if two were listened to.
    async fn hear_no_more(&self, listener: Option<u64>, channel: &str, limit: Moment) {
        let nodes = self.nodes();
        let node = nodes
            .iter()
            .find(|node| !self.sharded && Some(node.wakes.number()) == listener);
        if let Some(node) = node {
            node.wakes.hear_no_more(channel, limit).await;
        }
    }
}
