//! The task behind a connection: writes what its senders left, and reads the replies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::sync::mpsc;

use super::resp::{self, Unparsed};
use super::stream::Stream;
use super::{Done, Push, Shared, WireError};

/// How much is read at once, and how much buffer is kept between requests.
const BUFFER: usize = 32 * 1024;

pub(super) struct Driver {
    shared: Arc<Shared>,
    stream: Stream,
    pushes: Option<mpsc::UnboundedSender<Push>>,
    input: Input,
    /// What is being written, and how much of it has been.
    output: Vec<u8>,
    written: usize,
    /// Whether TLS may have buffered something.
    unflushed: bool,
    /// Whether other tasks have had the chance to join the next write.
    yielded: bool,
    done: Vec<Done>,
}

/// The bytes that were read but not parsed yet.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How many of them the next reply needs, as far as is known.
    needed: usize,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        stream: Stream,
        pushes: Option<mpsc::UnboundedSender<Push>>,
    ) -> Self {
        Self {
            shared,
            stream,
            pushes,
            input: Input::new(),
            output: Vec::new(),
            written: 0,
            unflushed: false,
            yielded: false,
            done: Vec::new(),
        }
    }

    /// Works until the connection ends.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<WireError> {
        loop {
            if let Poll::Ready(error) = self.poll_replies(context) {
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
            match ready!(self.input.poll_fill(&mut self.stream, context)) {
                Ok(0) => {
                    let eof = io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up");
                    return Poll::Ready(eof.into());
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(error.into()),
            }
            if let Err(error) = self.dispatch() {
                return Poll::Ready(error);
            }
        }
    }

    /// Gives the complete replies to their requests.
    fn dispatch(&mut self) -> Result<(), WireError> {
        let (received, invalid) = self.input.parse();
        let pushes = self.shared.take(received, &mut self.done);
        for done in self.done.drain(..) {
            done.wake();
        }
        for push in pushes? {
            if let Some(receiver) = &self.pushes {
                // The client may be closing.
                let _ = receiver.send(push);
            }
        }
        invalid
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
        let error = ready!(driver.poll_work(context));
        driver.shared.close(&error);
        Poll::Ready(())
    }
}

impl Drop for Driver {
    /// Also if its runtime is shut down.
    fn drop(&mut self) {
        self.shared.close(&WireError::Closed);
        if let Some(pushes) = &self.pushes {
            let _ = pushes.send(Push::Disconnected);
        }
    }
}

impl Input {
    fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            needed: 1,
        }
    }

    /// Reads more bytes. Returns how many; 0 at the end of the stream.
    fn poll_fill(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut free = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(stream.poll_read(context, &mut free))?;
        let read = free.filled().len();
        self.end += read;
        Poll::Ready(Ok(read))
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER {
                self.buffer.truncate(BUFFER);
                self.buffer.shrink_to_fit();
            }
        } else if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            // Not by what is needed: a length alone proves nothing.
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
    }

    /// Parses all that is complete. `Err` if the rest is not the Redis protocol.
    fn parse(&mut self) -> (Vec<resp::Received>, Result<(), WireError>) {
        let mut received = Vec::new();
        while self.end - self.start >= self.needed {
            match resp::parse(&self.buffer[self.start..self.end]) {
                Ok((complete, used)) => {
                    self.start += used;
                    self.needed = 1;
                    received.push(complete);
                }
                Err(Unparsed::Incomplete(needed)) => self.needed = needed,
                Err(Unparsed::Invalid(what)) => return (received, Err(WireError::Protocol(what))),
            }
        }
        (received, Ok(()))
    }
}
