//! Event streams: how something is now, and then what changes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::app::AppState;
use crate::problem::Problem;

/// How many messages a slow reader may be behind before it is told everything anew.
const BEHIND_MAX: usize = 1_024;
/// A line now and then, so that proxies and readers know that the stream is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// One message, written once for all readers: clones share its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// What it is about, for readers that want one thing only.
    about: Arc<str>,
    /// As it goes over the wire.
    frame: Bytes,
}

/// Something that people watch.
#[derive(Debug)]
pub(crate) struct Feed {
    sender: broadcast::Sender<Message>,
    /// Stands before each number: another process, or another feed, has another.
    tag: String,
    past: Mutex<Past>,
}

/// The last messages, for readers that come back.
#[derive(Debug, Default)]
struct Past {
    messages: VecDeque<Message>,
    /// How many there were before them.
    before: u64,
}

/// What a reader wants of a feed.
pub(crate) struct Source {
    /// How it is now, as messages.
    pub(crate) snapshot: Box<dyn Fn() -> Vec<Message> + Send>,
    /// Which messages, by what they are about.
    pub(crate) wanted: Box<dyn Fn(&str) -> bool + Send>,
    pub(crate) feed: Arc<Feed>,
}

impl Message {
    /// Part of a snapshot: it has no id, since nothing follows from having seen it.
    pub(crate) fn now(event: &str, about: &str, data: &impl Serialize) -> Self {
        Self::written(event, None, about, data)
    }

    /// With an id, by which a reader that comes back says what it had.
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
        // JSON has no line breaks but those that are written out.
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

    /// Tells all readers.
    pub(crate) fn tell(&self, event: &'static str, about: &str, data: &impl Serialize) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let number = past.before + past.messages.len() as u64 + 1;
        let id = format!("{}-{number}", self.tag);
        let message = Message::written(event, Some(&id), about, data);
        if past.messages.len() == BEHIND_MAX {
            past.messages.pop_front();
            past.before += 1;
        }
        past.messages.push_back(message.clone());
        // In the order of their numbers. Nobody reads: then nobody misses it.
        let _ = self.sender.send(message);
    }

    /// The messages after the one with this id, if none of them was forgotten.
    fn after(&self, id: &str) -> Option<Vec<Message>> {
        let number = id.strip_prefix(&self.tag)?.strip_prefix('-')?;
        let number: u64 = number.parse().ok()?;
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = usize::try_from(number.checked_sub(past.before)?).ok()?;
        let is_known = seen <= past.messages.len();
        is_known.then(|| past.messages.iter().skip(seen).cloned().collect())
    }

    /// How many read it now.
    pub(crate) fn readers(&self) -> usize {
        self.sender.receiver_count()
    }
}

/// Answers with one stream of several feeds: first how each is now, then every message that is wanted.
/// A reader that falls behind gets `resync` and everything anew, so it holds no more than one snapshot,
/// which it shares with others.
pub(crate) fn respond(app: &AppState, sources: Vec<Source>) -> Result<Response, Problem> {
    respond_after(app, sources, None)
}

/// The same for a reader that comes back, with the id of the last message that it had: the feed that
/// it was of goes on from there, unless too much has happened since.
pub(crate) fn respond_after(
    app: &AppState,
    sources: Vec<Source>,
    last: Option<&str>,
) -> Result<Response, Problem> {
    let reading = |source| Box::pin(read(source, last));
    respond_with(app, stream::select_all(sources.into_iter().map(reading)))
}

/// Answers with a stream of any messages, which ends when the service stops.
pub(crate) fn respond_with(
    app: &AppState,
    messages: impl Stream<Item = Message> + Send + 'static,
) -> Result<Response, Problem> {
    let permit = app.limits.stream()?;
    let counted = app.metrics.count_stream();
    let stop = app.stop.clone();
    let messages = messages.take_until(async move { stop.cancelled().await });
    let frames = kept_alive(messages).map(move |frame| {
        let _as_long_as_it_is_read = (&permit, &counted);
        Ok::<_, Infallible>(frame)
    });
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // nginx would keep the events to itself until there are enough of them.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The messages as they go over the wire, and a line where there is none for a while.
fn kept_alive(
    messages: impl Stream<Item = Message> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Box::pin(messages), |mut messages| async move {
        let frame = match tokio::time::timeout(ALIVE_EVERY, messages.next()).await {
            Ok(message) => message?.frame,
            Err(_) => Bytes::from_static(b": alive\n\n"),
        };
        Some((frame, messages))
    })
}

fn read(source: Source, last: Option<&str>) -> impl Stream<Item = Message> + Send + use<> {
    // Before the snapshot: what happens between the two is told twice rather than never.
    let receiver = source.feed.sender.subscribe();
    let missed = last.and_then(|last| source.feed.after(last));
    let ahead: VecDeque<Message> = match missed {
        Some(missed) => {
            let wanted = missed.into_iter();
            wanted.filter(|it| (source.wanted)(&it.about)).collect()
        }
        None => (source.snapshot)().into(),
    };
    stream::unfold((source, receiver, ahead), |mut reading| async move {
        let (source, receiver, ahead) = &mut reading;
        let message = next(source, receiver, ahead).await?;
        Some((message, reading))
    })
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
        let mut events = Box::pin(read(source(&feed), None));
        let first = events.next().await.unwrap();
        assert!(shown(&first).contains("snapshot"), "{first:?}");
        for number in 0..BEHIND_MAX * 5 {
            feed.tell("changed", "", &number);
        }
        let second = events.next().await.unwrap();
        assert!(shown(&second).contains("resync"), "{second:?}");
        let third = events.next().await.unwrap();
        assert!(shown(&third).contains("snapshot"), "{third:?}");
        // Nothing of what was missed, and then what comes.
        feed.tell("other", "other", &0);
        feed.tell("last", "", &0);
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
            feed.tell("changed", "", &number);
        }
        let missed = |number| feed.after(&id(number)).map(|missed| missed.len());
        assert_eq!(missed(0), Some(BEHIND_MAX));
        assert_eq!(missed(BEHIND_MAX), Some(0));
        assert_eq!(missed(BEHIND_MAX + 1), None, "not told yet");
        feed.tell("changed", "", &0);
        assert_eq!((missed(0), missed(1)), (None, Some(BEHIND_MAX)));
        assert!(feed.after("1").is_none() && feed.after(&Feed::new().tag).is_none());
    }
}
