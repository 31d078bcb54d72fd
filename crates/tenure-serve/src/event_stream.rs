//! Event streams: the current state, then changes, until the stream is closed.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream::{self, Stream, StreamExt};

use crate::feed::Source;
use crate::feed::outgoing::Outgoing;
use crate::problem::Problem;
use crate::state::AppState;

/// A comment line now and then, so that proxies and readers know that the stream is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Responds with one feed.
pub(crate) fn respond(app: &AppState, source: Source) -> Result<Response, Problem> {
    respond_with(app, source.read(None))
}

/// Responds with several feeds in one stream. A reader that reconnects passes the id of the last
/// message that it received.
pub(crate) fn respond_after(
    app: &AppState,
    sources: Vec<Source>,
    last: Option<&str>,
) -> Result<Response, Problem> {
    let reading = |source: Source| Box::pin(source.read(last));
    respond_with(app, stream::select_all(sources.into_iter().map(reading)))
}

/// Responds with a stream of any messages, which ends when the service stops.
pub(crate) fn respond_with(
    app: &AppState,
    messages: impl Stream<Item = Outgoing> + Send + 'static,
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
        // nginx would buffer the events otherwise.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The messages in the format of event streams, with a comment line after a pause. Ends with a message
/// that is no longer kept because its reader is too slow.
fn kept_alive(
    messages: impl Stream<Item = Outgoing> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    let begun = (Box::pin(messages), None::<Outgoing>);
    stream::unfold(begun, |(mut messages, mut current)| async move {
        loop {
            if let Some(chunk) = current.as_mut().and_then(Outgoing::next_chunk) {
                return Some((chunk.ok()?, (messages, current)));
            }
            match tokio::time::timeout(ALIVE_EVERY, messages.next()).await {
                Ok(message) => current = Some(message?),
                Err(_) => {
                    return Some((Bytes::from_static(b": alive\n\n"), (messages, None)));
                }
            }
        }
    })
}
