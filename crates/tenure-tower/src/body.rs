//! The body of a response: holds the lock until it has been sent.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tenure::Guard;

type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a response under a lock. The lock is released when it ends or is dropped.
pub struct LockedBody<B>(Content<B>);

enum Content<B> {
    /// The problem that is the answer.
    Problem(Option<Bytes>),
    Free(Pin<Box<B>>),
    Held(Pin<Box<B>>, Held),
    /// It broke off.
    Ended,
}

/// Dropped, it releases the lock.
struct Held {
    lost: Pin<Box<dyn Future<Output = ()> + Send>>,
    guard: Guard,
}

impl<B> LockedBody<B> {
    pub(crate) fn problem(text: String) -> Self {
        Self(Content::Problem(Some(text.into())))
    }

    pub(crate) fn free(body: B) -> Self {
        Self(Content::Free(Box::pin(body)))
    }

    pub(crate) fn under(guard: Guard, body: B) -> Self {
        let lost = Box::pin(guard.lost_token().cancelled_owned());
        Self(Content::Held(Box::pin(body), Held { lost, guard }))
    }
}

impl<B> Body for LockedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match &mut self.0 {
            Content::Ended => None,
            Content::Problem(text) => text.take().map(|text| Ok(Frame::data(text))),
            Content::Free(body) => ready!(body.as_mut().poll_frame(context)).map(converted),
            Content::Held(body, held) => {
                if held.lost.as_mut().poll(context).is_ready() {
                    let lost = format!(
                        "the lock `{}` was lost while the response was sent",
                        held.guard.name()
                    );
                    Some(Err(lost.into()))
                } else {
                    ready!(body.as_mut().poll_frame(context)).map(converted)
                }
            }
        };
        if !matches!(frame, Some(Ok(_))) {
            self.0 = Content::Ended;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Ended => true,
            Content::Problem(text) => text.is_none(),
            Content::Free(body) | Content::Held(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Ended | Content::Problem(None) => SizeHint::with_exact(0),
            Content::Problem(Some(text)) => SizeHint::with_exact(text.len() as u64),
            Content::Free(body) | Content::Held(body, _) => body.size_hint(),
        }
    }
}

fn converted<E: Into<BoxError>>(frame: Result<Frame<Bytes>, E>) -> Result<Frame<Bytes>, BoxError> {
    frame.map_err(Into::into)
}

impl<B> fmt::Debug for LockedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedBody").finish_non_exhaustive()
    }
}
