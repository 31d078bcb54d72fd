//! Event streams: how something is now, and then what changes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};

use super::App;
use super::problem::Problem;

/// How many messages a slow reader may be behind before it is told everything anew.
const BEHIND_MAX: usize = 1_024;
/// A line now and then, so that proxies and readers know that the stream is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// One message, written once for all readers.
#[derive(Debug)]
pub struct Message {
    /// None for part of a snapshot.
    id: Option<String>,
    event: &'static str,
    /// What it is about, for readers that want one thing only.
    about: String,
    data: String,
}

/// Something that people watch.
#[derive(Debug)]
pub struct Feed {
    sender: broadcast::Sender<Arc<Message>>,
    /// Stands before each number: another process, or another feed, has another.
    tag: String,
    past: Mutex<Past>,
}

/// The last messages, for readers that come back.
#[derive(Debug, Default)]
struct Past {
    messages: VecDeque<Arc<Message>>,
    /// How many there were before them.
    before: u64,
}

/// What a reader wants of a feed.
pub struct Source {
    /// How it is now, as messages.
    pub snapshot: Box<dyn Fn() -> Vec<Message> + Send>,
    /// Which messages, by what they are about.
    pub wanted: Box<dyn Fn(&str) -> bool + Send>,
    pub feed: Arc<Feed>,
}

impl Message {
    /// Part of a snapshot: it has no number, since nothing follows from having seen it.
    pub fn now(event: &'static str, about: &str, data: &impl Serialize) -> Self {
        Self {
            id: None,
            event,
            about: about.to_owned(),
            data: serde_json::to_string(data).unwrap_or_default(),
        }
    }

    fn to_sse(&self) -> Event {
        let event = Event::default().event(self.event).data(&self.data);
        match &self.id {
            Some(id) => event.id(id),
            None => event,
        }
    }
}

impl Feed {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            sender: broadcast::channel(BEHIND_MAX).0,
            tag: format!("{:08x}", rand::random::<u32>()),
            past: Mutex::default(),
        })
    }

    /// Tells all readers.
    pub fn tell(&self, event: &'static str, about: &str, data: &impl Serialize) {
        let mut message = Message::now(event, about, data);
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let number = past.before + past.messages.len() as u64 + 1;
        message.id = Some(format!("{}-{number}", self.tag));
        let message = Arc::new(message);
        if past.messages.len() == BEHIND_MAX {
            past.messages.pop_front();
            past.before += 1;
        }
        past.messages.push_back(Arc::clone(&message));
        // In the order of their numbers. Nobody reads: then nobody misses it.
        let _ = self.sender.send(message);
    }

    /// The messages after the one with this id, if none of them was forgotten.
    fn after(&self, id: &str) -> Option<Vec<Arc<Message>>> {
        let number = id.strip_prefix(&self.tag)?.strip_prefix('-')?;
        let number: u64 = number.parse().ok()?;
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = usize::try_from(number.checked_sub(past.before)?).ok()?;
        let is_known = seen <= past.messages.len();
        is_known.then(|| past.messages.iter().skip(seen).cloned().collect())
    }

    /// How many read it now.
    pub fn readers(&self) -> usize {
        self.sender.receiver_count()
    }
}

/// Answers with one stream of several feeds: first how each is now, then every message that is wanted.
/// A reader that falls behind gets `resync` and everything anew, so it never holds more memory than
/// its socket.
pub fn respond(app: &App, sources: Vec<Source>) -> Result<Response, Problem> {
    respond_after(app, sources, None)
}

/// The same for a reader that comes back, with the id of the last message that it had: the feed that
/// it was of goes on from there, unless too much has happened since.
pub fn respond_after(
    app: &App,
    sources: Vec<Source>,
    last: Option<&str>,
) -> Result<Response, Problem> {
    let reading = |source| Box::pin(read(source, last));
    respond_with(app, stream::select_all(sources.into_iter().map(reading)))
}

/// Answers with a stream of any events, which ends when the service stops.
pub fn respond_with(
    app: &App,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Result<Response, Problem> {
    let permit = app.limits.stream()?;
    let counted = app.metrics.count_stream();
    let stop = app.stop.clone();
    let events = events.take_until(async move { stop.cancelled().await });
    let events = events.map(move |event| {
        let _as_long_as_it_is_read = (&permit, &counted);
        Ok::<_, Infallible>(event)
    });
    let alive = KeepAlive::new().interval(ALIVE_EVERY);
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    // nginx would keep the events to itself until there are enough of them.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    Ok(response)
}

fn read(source: Source, last: Option<&str>) -> impl Stream<Item = Event> + Send + use<> {
    // Before the snapshot: what happens between the two is told twice rather than never.
    let receiver = source.feed.sender.subscribe();
    let missed = last.and_then(|last| source.feed.after(last));
    let ahead: VecDeque<Event> = match missed {
        Some(missed) => {
            let wanted = missed.iter().filter(|it| (source.wanted)(&it.about));
            wanted.map(|message| message.to_sse()).collect()
        }
        None => (source.snapshot)().iter().map(Message::to_sse).collect(),
    };
    stream::unfold((source, receiver, ahead), |mut reading| async move {
        let (source, receiver, ahead) = &mut reading;
        let event = next(source, receiver, ahead).await?;
        Some((event, reading))
    })
}

async fn next(
    source: &mut Source,
    receiver: &mut broadcast::Receiver<Arc<Message>>,
    ahead: &mut VecDeque<Event>,
) -> Option<Event> {
    loop {
        if let Some(event) = ahead.pop_front() {
            return Some(event);
        }
        match receiver.recv().await {
            Ok(message) if (source.wanted)(&message.about) => return Some(message.to_sse()),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => {
                *receiver = source.feed.sender.subscribe();
                ahead.push_back(Event::default().event("resync").data("{}"));
                ahead.extend((source.snapshot)().iter().map(Message::to_sse));
            }
            Err(RecvError::Closed) => return None,
        }
    }
}
