//! The bytes that a connection has read, until they are parsed.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::WireError;
use super::resp::{self, Unparsed};
#[cfg(unix)]
use super::socket::Socket;
use super::stream::Stream;

/// How much is read at once, and how much buffer is kept between requests.
pub(super) const BUFFER: usize = 32 * 1024;

/// The bytes that were read but not parsed yet.
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How many of them the next reply needs, as far as is known.
    needed: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            needed: 1,
        }
    }

    /// Reads more bytes. Returns how many; 0 at the end of the stream.
    pub(super) fn poll_fill(
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

    /// Reads the bytes that are there, without the driver. Returns how many.
    #[cfg(unix)]
    pub(super) fn fill_now(&mut self, socket: &Socket) -> io::Result<usize> {
        self.make_room();
        let read = socket.try_read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read)
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
    pub(super) fn parse(&mut self) -> (Vec<resp::Received>, Result<(), WireError>) {
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
