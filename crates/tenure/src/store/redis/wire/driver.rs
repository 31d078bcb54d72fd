//! The task behind a connection: writes what its senders left, and reads the replies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::input::BUFFER;
use super::stream::Stream;
use super::{Done, Push, Shared, WireError};

/// A driver that rests begins to read again if no request was sent for this long, so that it notices
/// when the server hangs up.
const REST: Duration = Duration::from_millis(10);

pub(super) struct Driver {
    shared: Arc<Shared>,
    stream: Stream,
    /// What is being written, and how much of it has been.
    output: Vec<u8>,
    written: usize,
    /// Whether TLS may have buffered something.
    unflushed: bool,
    /// Whether other tasks have had the chance to join the next write.
    yielded: bool,
    done: Vec<Done>,
    /// While it leaves replies to callers.
    rest: Option<Rest>,
}

/// The driver does nothing, because callers read their replies themselves.
struct Rest {
    timer: Pin<Box<Sleep>>,
    /// How many requests had been sent when the timer was set.
    sent: u64,
}

impl Rest {
    fn new(sent: u64) -> Self {
        let timer = Box::pin(tokio::time::sleep(REST));
        Self { timer, sent }
    }
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, stream: Stream) -> Self {
        Self {
            shared,
            stream,
            output: Vec::new(),
            written: 0,
            unflushed: false,
            yielded: false,
            done: Vec::new(),
            rest: None,
        }
    }

    /// Whether it leaves all work to callers for now. It is woken when there is some.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let is_idle = state.out.is_empty() && !state.gathering && self.output.is_empty();
        if !state.driver_rests || !is_idle || state.is_closed() {
            state.driver_rests = false;
            self.rest = None;
            return Poll::Ready(());
        }
        let rest = self.rest.get_or_insert_with(|| Rest::new(state.sent));
        self.stream.rest();
        while rest.timer.as_mut().poll(context).is_ready() {
            if rest.sent == state.sent {
                state.driver_rests = false;
                self.rest = None;
                return Poll::Ready(());
            }
            *rest = Rest::new(state.sent);
        }
        state.driver = Some(context.waker().clone());
        Poll::Pending
    }

    /// Works until the connection ends.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<WireError> {
        loop {
            let caller_reads = self.shared.state().caller_reads;
            if !caller_reads && let Poll::Ready(error) = self.poll_replies(context) {
                return Poll::Ready(error);
            }
            let is_written = match self.poll_output(context) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                Poll::Pending => false,
            };
            let mut state = self.shared.state();
            if let Some(error) = &state.closed {
                return Poll::Ready(error.clone());
            }
            if caller_reads && !state.caller_reads {
                // The caller is done, and could not wake a driver that does not sleep.
                continue;
            }
            if !is_written || state.out.is_empty() && !state.gathering {
                state.driver = Some(context.waker().clone());
                return Poll::Pending;
            }
            if !self.yielded {
                // Tasks that run now, such as those that just got their replies, can add their
                // requests to this write.
                self.yielded = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if std::mem::take(&mut state.gathering)
                && let Some(gather) = self.shared.gather.get()
            {
                drop(state);
                gather();
                state = self.shared.state();
            }
            self.yielded = false;
            state.note_write();
            std::mem::swap(&mut state.out, &mut self.output);
        }
    }

    /// Reads replies until there are no more for now.
    fn poll_replies(&mut self, context: &mut Context<'_>) -> Poll<WireError> {
        loop {
            let mut input = self.shared.input();
            match ready!(input.poll_fill(&mut self.stream, context)) {
                Ok(0) => {
                    let eof = io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up");
                    return Poll::Ready(eof.into());
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(error.into()),
            }
            if let Err(error) = self.shared.dispatch(input, &mut self.done) {
                return Poll::Ready(error);
            }
        }
    }

    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.output.len() {
            let left = &self.output[self.written..];
            let written = ready!(self.stream.poll_write(context, left))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.unflushed = true;
        }
        self.written = 0;
        self.output.clear();
        self.output.shrink_to(BUFFER);
        if self.unflushed {
            ready!(self.stream.poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        ready!(driver.poll_rest(context));
        let error = ready!(driver.poll_work(context));
        driver.shared.close(&error);
        Poll::Ready(())
    }
}

impl Drop for Driver {
    /// Also if its runtime is shut down.
    fn drop(&mut self) {
        self.shared.close(&WireError::Closed);
        self.shared.push(Push::Disconnected);
    }
}
