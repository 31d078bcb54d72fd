//! Feeds: first the current state, then the changes.
//!
//! A reader has nothing but its place in the feed. The messages belong to the feed, which keeps a
//! limited number of bytes, so that readers that do not read cost no memory.

pub(crate) mod outgoing;
mod past;
mod snapshots;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use self::outgoing::Outgoing;
use self::past::{Next, Past};
use self::snapshots::Snapshots;

/// One message, serialized once for all readers: clones share its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Its subject, for readers that filter.
    about: Arc<str>,
    /// In the format of event streams.
    frame: Arc<Bytes>,
}

/// Something that can be watched.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Prefix of each number, different for each process and feed.
    tag: String,
    past: Mutex<Past>,
    /// Changes with each message.
    news: watch::Sender<News>,
    snapshots: Snapshots,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Goes,
    /// No message will follow.
    Over,
}

/// What a reader wants from a feed.
pub(crate) struct Source {
    /// Returns the current state.
    pub(crate) snapshot: Box<dyn Fn() -> Option<Outgoing> + Send>,
    /// Selects messages by their subject.
    pub(crate) wanted: Box<dyn Fn(&str) -> bool + Send>,
    pub(crate) feed: Arc<Feed>,
}

/// A reader in the middle of a feed.
struct Reading {
    source: Source,
    news: watch::Receiver<News>,
    /// The number of the last message that it had, or did not want.
    seen: u64,
    /// What it gets before the next message.
    ahead: VecDeque<Outgoing>,
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
            frame: Arc::new(frame.into()),
        }
    }

    /// Its bytes, in the format of event streams.
    pub(crate) fn frame(&self) -> Bytes {
        Bytes::clone(&self.frame)
    }

    fn len(&self) -> usize {
        self.frame.len()
    }
}

impl Feed {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            tag: format!("{:08x}", rand::random::<u32>()),
            past: Mutex::default(),
            news: watch::Sender::new(News::Goes),
            snapshots: Snapshots::default(),
        })
    }

    /// Sends it to all readers.
    pub(crate) fn publish(&self, event: &'static str, about: &str, data: &impl Serialize) {
        let mut past = self.past();
        let id = format!("{}-{}", self.tag, past.last() + 1);
        past.push(Message::written(event, Some(&id), about, data));
        drop(past);
        self.news.send_modify(|_| {});
    }

    /// Ends the streams of all readers.
    pub(crate) fn end(&self) {
        self.news.send_replace(News::Over);
    }

    /// Keeps the text of a snapshot for as long as readers are being sent it, within a limit.
    pub(crate) fn keep(&self, text: impl Into<Bytes>) -> Arc<Bytes> {
        self.snapshots.keep(text.into())
    }

    /// A snapshot for one reader.
    pub(crate) fn snapshot(&self, message: &Message) -> Outgoing {
        Outgoing::whole(&self.keep(message.frame()))
    }

    /// The number of readers.
    pub(crate) fn readers(&self) -> usize {
        self.news.receiver_count()
    }

    /// The number of the message with this id, if all later ones are still kept.
    fn number(&self, id: &str) -> Option<u64> {
        let number = id.strip_prefix(&self.tag)?.strip_prefix('-')?;
        let number: u64 = number.parse().ok()?;
        self.past().is_known(number).then_some(number)
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// First the current state, then every message that the reader wants. A reader that falls
    /// behind gets `resync` and a new snapshot.
    ///
    /// A reader that reconnects passes the id of the last message that it received. If this feed
    /// sent that message and still keeps all later ones, the reader resumes from there.
    pub(crate) fn read(self, last: Option<&str>) -> impl Stream<Item = Outgoing> + Send + use<> {
        let (news, seen) = (self.feed.news.subscribe(), self.feed.past().last());
        let mut reading = Reading {
            source: self,
            news,
            seen,
            ahead: VecDeque::new(),
        };
        match last.and_then(|last| reading.source.feed.number(last)) {
            Some(number) => reading.seen = number,
            // After its place: a change in between is sent twice rather than never.
            None => reading.ahead.extend((reading.source.snapshot)()),
        }
        stream::unfold(reading, |mut reading| async move {
            let next = reading.next().await?;
            Some((next, reading))
        })
    }
}

impl Reading {
    async fn next(&mut self) -> Option<Outgoing> {
        let feed = Arc::clone(&self.source.feed);
        loop {
            if let Some(ahead) = self.ahead.pop_front() {
                return Some(ahead);
            }
            let next = feed.past().after(self.seen);
            match next {
                Next::Message(message) => {
                    self.seen += 1;
                    if (self.source.wanted)(&message.about) {
                        return Some(Outgoing::whole(&message.frame));
                    }
                }
                Next::Missed => {
                    self.seen = feed.past().last();
                    let resync = Message::now("resync", "", &json!({}));
                    self.ahead.push_back(Outgoing::own(resync.frame()));
                    self.ahead.extend((self.source.snapshot)());
                }
                Next::Nothing if *self.news.borrow() == News::Over => return None,
                Next::Nothing => self.news.changed().await.ok()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::past::BEHIND_MAX;
    use super::*;

    fn source(feed: &Arc<Feed>) -> Source {
        let shown = Arc::clone(feed);
        Source {
            snapshot: Box::new(move || Some(shown.snapshot(&Message::now("snapshot", "", &"now")))),
            wanted: Box::new(|about| about != "other"),
            feed: Arc::clone(feed),
        }
    }

    async fn next(events: &mut (impl Stream<Item = Outgoing> + Unpin)) -> String {
        events.next().await.unwrap().read().unwrap()
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_told_everything_anew() {
        let feed = Feed::new();
        let mut events = Box::pin(source(&feed).read(None));
        let first = next(&mut events).await;
        assert!(first.contains("snapshot"), "{first}");
        for number in 0..BEHIND_MAX * 5 {
            feed.publish("changed", "", &number);
        }
        let second = next(&mut events).await;
        assert!(second.contains("resync"), "{second}");
        let third = next(&mut events).await;
        assert!(third.contains("snapshot"), "{third}");
        // None of the missed messages, only new ones.
        feed.publish("other", "other", &0);
        feed.publish("last", "", &0);
        let last = next(&mut events).await;
        assert!(last.contains("last"), "{last}");
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_has_what_it_missed_in_order() {
        let feed = Feed::new();
        for number in 1..=5 {
            feed.publish("changed", "", &number);
        }
        let id = |number: u64| format!("{}-{number}", feed.tag);
        let mut events = Box::pin(source(&feed).read(Some(&id(3))));
        for number in [4, 5] {
            let missed = next(&mut events).await;
            assert!(missed.contains(&format!("data: {number}\n")), "{missed}");
        }
        // Not told yet, of another feed, or nonsense: everything anew.
        for unknown in [id(6), Feed::new().tag.clone(), "1".to_owned()] {
            let mut events = Box::pin(source(&feed).read(Some(&unknown)));
            let first = next(&mut events).await;
            assert!(first.contains("snapshot"), "{first}");
        }
    }

    #[tokio::test]
    async fn readers_are_counted_and_their_streams_end_with_the_feed() {
        let feed = Feed::new();
        let mut events = Box::pin(source(&feed).read(None));
        assert_eq!(feed.readers(), 1);
        next(&mut events).await;
        feed.publish("last", "", &0);
        feed.end();
        assert!(next(&mut events).await.contains("last"));
        assert!(events.next().await.is_none());
        drop(events);
        assert_eq!(feed.readers(), 0);
    }
}
