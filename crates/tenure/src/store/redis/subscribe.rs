//! Hearing what is said of a lock: where it is now, and no more.

use super::RedisStore;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::Failure;

impl RedisStore {
    pub(super) async fn try_listen(&self, name: &LockName, limit: Moment) -> Result<(), Failure> {
        let limit = self.command_limit(limit);
        let mut way = self.way(name)?;
        loop {
            let answer = way.node.wakes.listen(name, limit).await;
            let Err(failure) = answer else { return answer };
            way = self.onward(name, way, failure, limit).await?;
        }
    }

    pub(super) async fn try_unlisten(&self, name: &LockName, limit: Moment) {
        let limit = self.command_limit(limit);
        for (channel, _) in self.layout.channels(name).iter().rev() {
            let Some(listener) = self.channels.forget(channel) else {
                continue;
            };
            let nodes = self.routes.all();
            let mut nodes = nodes.iter();
            if let Some(node) = nodes.find(|node| node.wakes.number() == listener) {
                node.wakes.hear_no_more(channel, limit).await;
            }
        }
    }
}
