//! Subscribes a connection to channels.

use super::Connection;
use super::send_options::SendOptions;
use crate::moment::Moment;
use crate::store::Failure;
use crate::timings::Call;

impl Connection {
    /// Subscribes to a channel, or to one in the shard of this node.
    pub(crate) async fn subscribe(
        &self,
        channel: &str,
        sharded: bool,
        limit: Moment,
    ) -> Result<(), Failure> {
        let word = if sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        self.confirm(word, channel, limit).await
    }

    pub(crate) async fn unsubscribe(
        &self,
        channel: &str,
        sharded: bool,
        limit: Moment,
    ) -> Result<(), Failure> {
        let word = if sharded {
            "SUNSUBSCRIBE"
        } else {
            "UNSUBSCRIBE"
        };
        self.confirm(word, channel, limit).await
    }

    async fn confirm(
        &self,
        word: &'static str,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        let start = self.start_call();
        let confirmed = self.wire.confirm(word, channel);
        let confirmed = self.await_reply(confirmed, SendOptions::until(limit)).await;
        let confirmed = confirmed.and_then(|reply| self.check_error(reply));
        self.finish_call(&start, || Call::Listen, &confirmed);
        confirmed.map(drop)
    }
}
