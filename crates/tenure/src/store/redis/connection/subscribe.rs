//! Subscribes a connection to channels.

use ::redis::aio::ConnectionLike;

use super::Connection;
use super::send_options::SendOptions;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::Failure;
use crate::store::redis::value::Value;
use crate::timings::Call;

impl Connection {
    pub(crate) async fn subscribe(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let reply = self
            .await_reply(inner.subscribe(channel), SendOptions::until(limit))
            .await;
        self.finish_call(&start, || Call::Listen, &reply);
        reply
    }

    pub(crate) async fn unsubscribe(&self, channel: &str, limit: Moment) -> Result<(), Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let reply = self
            .await_reply(inner.unsubscribe(channel), SendOptions::until(limit))
            .await;
        self.finish_call(&start, || Call::Listen, &reply);
        reply
    }

    /// Subscribes to a channel in the shard of this node.
    pub(in crate::store::redis) async fn ssubscribe(
        &self,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        self.subscribe_command("SSUBSCRIBE", channel, limit).await
    }

    pub(in crate::store::redis) async fn sunsubscribe(
        &self,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        self.subscribe_command("SUNSUBSCRIBE", channel, limit).await
    }

    /// Sends a command about a shard channel, and checks that the reply is about the same channel.
    /// A server that loses a slot pushes an unsubscribe, and the client crate takes that for the
    /// reply to the pending command: then all replies are off by one, and the connection must be
    /// closed.
    async fn subscribe_command(
        &self,
        word: &str,
        channel: &str,
        limit: Moment,
    ) -> Result<(), Failure> {
        let (mut inner, start) = (self.inner.clone(), self.start_call());
        let command = ::redis::cmd(word).arg(channel).clone();
        let reply = self.await_reply(
            inner.req_packed_command(&command),
            SendOptions::until(limit),
        );
        let reply = reply.await;
        self.finish_call(&start, || Call::Listen, &reply);
        let value = reply?;
        if let ::redis::Value::Push { kind, data } = &value {
            let same_word = kind.to_string().eq_ignore_ascii_case(word);
            let about = data.first().cloned().map(Value::of);
            let same_channel = about.as_ref().and_then(Value::as_str) == Some(channel);
            if same_word && same_channel {
                return Ok(());
            }
        }
        let answered = self.check_error(value).map(|_| {
            self.close();
            Failure::not_sent(Error::new(
                ErrorKind::Unavailable,
                format!("`{}` moved a slot while subscribing", self.server.target),
            ))
        });
        Err(answered.unwrap_or_else(|refused| refused))
    }
}
