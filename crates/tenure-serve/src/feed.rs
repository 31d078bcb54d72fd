//! Feeds: first the current state, then the changes.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};

/// How many messages a slow reader may be behind before it gets a new snapshot.
const BEHIND_MAX: usize = 1_024;

/// One message, serialized once for all readers: clones share its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Its subject, for readers that filter.
    about: Arc<str>,
    /// In the format of event streams.
    pub(crate) frame: Bytes,
}

/// Something that can be watched.
#[derive(Debug)]
pub(crate) struct Feed {
    sender: broadcast::Sender<Message>,
    /// Prefix of each number, different for each process and feed.
    tag: String,
    past: Mutex<Past>,
}

/// The last messages, for readers that reconnect.
#[derive(Debug, Default)]
struct Past {
    messages: VecDeque<Message>,
    /// The number of messages before them.
    before: u64,
}

/// What a reader wants from a feed.
pub(crate) struct Source {
    /// Returns the current state, as messages.
    pub(crate) snapshot: Box<dyn Fn() -> Vec<Message> + Send>,
    /// Selects messages by their subject.
    pub(crate) wanted: Box<dyn Fn(&str) -> bool + Send>,
    pub(crate) feed: Arc<Feed>,
}

impl Message {
    /// Part of a snapshot. It has no id: a reader cannot resume from it.
    pub(crate) fn now(event: &str, about: &str, data: &impl Serialize) -> Self {
        Self::written(event, None, about, data)
    }

    /// With an id, from which a reader can resume after it reconnects.
    pub(crate) fn written(
        event: &str,
        id: Option<&str>,
        about: &str,
        data: &impl Serialize,
    ) -> Self {
        let mut frame = format!("event: {event}\n");
        if let Some(id) = id {
            let _ = writeln!(frame, "id: {id}");
        }
        // Line breaks in JSON strings are escaped.
        let data = serde_json::to_string(data).unwrap_or_default();
        let _ = write!(frame, "data: {data}\n\n");
        Self {
            about: about.into(),
            frame: frame.into(),
        }
    }
}

impl Feed {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            sender: broadcast::channel(BEHIND_MAX).0,
            tag: format!("{:08x}", rand::random::<u32>()),
            past: Mutex::default(),
        })
    }

    /// Sends it to all readers.
    pub(crate) fn publish(&self, event: &'static str, about: &str, data: &impl Serialize) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let number = past.before + past.messages.len() as u64 + 1;
        let id = format!("{}-{number}", self.tag);
        let message = Message::written(event, Some(&id), about, data);
        if past.messages.len() == BEHIND_MAX {
            past.messages.pop_front();
            past.before += 1;
        }
        past.messages.push_back(message.clone());
        // In order of their numbers. Without readers there is nothing to send.
        let _ = self.sender.send(message);
    }

    /// The messages after the one with this id, if all of them are still kept.
    fn after(&self, id: &str) -> Option<Vec<Message>> {
        let number = id.strip_prefix(&self.tag)?.strip_prefix('-')?;
        let number: u64 = number.parse().ok()?;
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = usize::try_from(number.checked_sub(past.before)?).ok()?;
        let is_known = seen <= past.messages.len();
        is_known.then(|| past.messages.iter().skip(seen).cloned().collect())
    }

    /// The number of readers.
    pub(crate) fn readers(&self) -> usize {
        self.sender.receiver_count()
    }
}

impl Source {
    /// First the current state, then every message that the reader wants. A reader that falls
    /// behind gets `resync` and a new snapshot, so it holds at most one snapshot, which readers
    /// share.
    ///
    /// A reader that reconnects passes the id of the last message that it received. If this feed
    /// sent that message and still keeps all later ones, the reader resumes from there.
    pub(crate) fn read(self, last: Option<&str>) -> impl Stream<Item = Message> + Send + use<> {
        // Subscribe before taking the snapshot: a change in between is sent twice rather than
        // never.
        let receiver = self.feed.sender.subscribe();
        let missed = last.and_then(|last| self.feed.after(last));
        let ahead: VecDeque<Message> = match missed {
            Some(missed) => {
                let wanted = missed.into_iter();
                wanted.filter(|it| (self.wanted)(&it.about)).collect()
            }
            None => (self.snapshot)().into(),
        };
        stream::unfold((self, receiver, ahead), |mut reading| async move {
            let (source, receiver, ahead) = &mut reading;
            let message = next(source, receiver, ahead).await?;
            Some((message, reading))
        })
    }
}

async fn next(
    source: &mut Source,
    receiver: &mut broadcast::Receiver<Message>,
    ahead: &mut VecDeque<Message>,
) -> Option<Message> {
    loop {
        if let Some(message) = ahead.pop_front() {
            return Some(message);
        }
        match receiver.recv().await {
            Ok(message) if (source.wanted)(&message.about) => return Some(message),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => {
                *receiver = source.feed.sender.subscribe();
                ahead.push_back(Message::now("resync", "", &json!({})));
                ahead.extend((source.snapshot)());
            }
            Err(RecvError::Closed) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn source(feed: &Arc<Feed>) -> Source {
        Source {
            snapshot: Box::new(|| vec![Message::now("snapshot", "", &"now")]),
            wanted: Box::new(|about| about != "other"),
            feed: Arc::clone(feed),
        }
    }

    fn shown(message: &Message) -> String {
        String::from_utf8(message.frame.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_told_everything_anew() {
        let feed = Feed::new();
        let mut events = Box::pin(source(&feed).read(None));
        let first = events.next().await.unwrap();
        assert!(shown(&first).contains("snapshot"), "{first:?}");
        for number in 0..BEHIND_MAX * 5 {
            feed.publish("changed", "", &number);
        }
        let second = events.next().await.unwrap();
        assert!(shown(&second).contains("resync"), "{second:?}");
        let third = events.next().await.unwrap();
        assert!(shown(&third).contains("snapshot"), "{third:?}");
        // None of the missed messages, only new ones.
        feed.publish("other", "other", &0);
        feed.publish("last", "", &0);
        let last = events.next().await.unwrap();
        assert!(shown(&last).contains("last"), "{last:?}");
        let past = feed.past.lock().unwrap();
        assert_eq!(past.messages.len(), BEHIND_MAX);
    }

    #[test]
    fn what_was_missed_is_known_unless_it_is_too_much() {
        let feed = Feed::new();
        let id = |number: usize| format!("{}-{number}", feed.tag);
        for number in 0..BEHIND_MAX {
            feed.publish("changed", "", &number);
        }
        let missed = |number| feed.after(&id(number)).map(|missed| missed.len());
        assert_eq!(missed(0), Some(BEHIND_MAX));
        assert_eq!(missed(BEHIND_MAX), Some(0));
        assert_eq!(missed(BEHIND_MAX + 1), None, "not told yet");
        feed.publish("changed", "", &0);
        assert_eq!((missed(0), missed(1)), (None, Some(BEHIND_MAX)));
        assert!(feed.after("1").is_none() && feed.after(&Feed::new().tag).is_none());
    }
}
