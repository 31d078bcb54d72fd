//! What a server sends unasked.

use crate::store::redis::value::Value;

/// A message that the server sends on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// A message on a channel.
    Message { channel: String, message: String },
    /// A subscription that we asked for has begun or ended.
    Confirmed,
    /// The server ended the subscription to a shard channel.
    ShardUnsubscribed(String),
    /// Tracked keys have changed; `None` if the server no longer knows which keys are tracked.
    Invalidated(Option<Vec<String>>),
    /// The connection has ended.
    Disconnected,
}

impl Push {
    /// Parses the data of a push; `None` if it means nothing to us.
    pub(super) fn parse(data: Vec<Value>) -> Option<Self> {
        let mut parts = data.into_iter();
        let kind = parts.next()?;
        match kind.as_str()? {
            "message" | "smessage" => Some(Self::Message {
                channel: text(&parts.next()?)?,
                message: text(&parts.next()?)?,
            }),
            "sunsubscribe" => text(&parts.next()?).map(Self::ShardUnsubscribed),
            "invalidate" => Some(Self::Invalidated(match parts.next()? {
                Value::Array(keys) => Some(keys.iter().filter_map(text).collect()),
                _ => None,
            })),
            _ => None,
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(ToOwned::to_owned)
}
