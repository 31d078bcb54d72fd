//! Subscribes to the messages of a lock on the node that has it now.

use super::redis_store::RedisStore;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::Failure;

impl RedisStore {
    pub(super) async fn try_subscribe(
        &self,
        name: &LockName,
        limit: Moment,
    ) -> Result<(), Failure> {
        let limit = self.command_limit(limit);
        let mut route = self.route(name)?;
        loop {
            let answer = route.node.messages.subscribe(name, limit).await;
            let Err(failure) = answer else { return answer };
            route = self.next_route(name, route, failure, limit).await?;
        }
    }

    pub(super) async fn try_unsubscribe(&self, name: &LockName, limit: Moment) {
        let limit = self.command_limit(limit);
        let channels = self.channels.of_lock(self.layout, name);
        for (channel, _) in channels.iter().rev() {
            let Some(listener) = self.channels.remove(channel) else {
                continue;
            };
            let nodes = self.routes.all();
            let mut nodes = nodes.iter();
            if let Some(node) = nodes.find(|node| node.messages.number() == listener) {
                node.messages.unsubscribe_channel(channel, limit).await;
            }
        }
    }
}
