//! Subscribes to the messages of a lock on the node that has it now; asks the client that keeps one.

use super::command::cmd;
use super::connection::SendOptions;
use super::layout::ask_message;
use super::redis_store::RedisStore;
use crate::lease::LeaseId;
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

    /// Tells the client that may keep a lease that its lock is wanted. True if somebody heard it.
    pub(super) async fn try_ask(
        &self,
        name: &LockName,
        holder: &LeaseId,
        limit: Moment,
    ) -> Result<bool, Failure> {
        let Some(keeper) = holder.keeper().map(LockName::of_keeper) else {
            return Ok(false);
        };
        let limit = self.command_limit(limit);
        let mut publish = cmd(if self.sharded { "SPUBLISH" } else { "PUBLISH" });
        publish.arg(self.keys.wake_channel(&keeper));
        publish.arg(ask_message(name, holder));
        let mut route = self.route(&keeper)?;
        loop {
            let heard = async {
                let connection = route.node.commands.connection(limit).await?;
                let options = SendOptions::until(limit).asking(route.asking);
                connection.run(&publish, options).await
            };
            match heard.await {
                Ok(reply) => return Ok(reply.as_int() != Some(0)),
                Err(failure) => route = self.next_route(&keeper, route, failure, limit).await?,
            }
        }
    }

    pub(super) async fn try_unsubscribe(&self, name: &LockName, limit: Moment) {
        let limit = self.command_limit(limit);
        let channels = self.channels.of_lock(&self.keys, name);
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
