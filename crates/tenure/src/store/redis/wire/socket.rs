//! A socket that any thread may read and write.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::ReadBuf;
use tokio::net::{TcpStream, UnixStream};

/// A socket that never blocks.
#[derive(Clone)]
pub(super) struct Socket(Arc<OwnedFd>);

/// A socket as the driver uses it: registered with its runtime, while that waits for it.
pub(in crate::store::redis) struct RegisteredSocket {
    socket: Socket,
    family: Family,
    registration: Option<Registration>,
}

#[derive(Clone, Copy)]
pub(super) enum Family {
    Tcp,
    Unix,
}

/// The same socket as its runtime sees it.
enum Registration {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Reads what is there.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, _) = recv(&self.0, buffer, RecvFlags::DONTWAIT)?;
        Ok(read)
    }

    /// Blocks until there is something to read, or for this long. False if there is nothing.
    pub(super) fn await_readable(&self, time: Duration) -> bool {
        let mut readable = [PollFd::new(&self.0, PollFlags::IN)];
        let time = Timespec::try_from(time).unwrap_or_default();
        poll(&mut readable, Some(&time)).is_ok_and(|ready| ready > 0)
    }

    /// Writes what the socket takes now.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        // No signal if the server has gone: the caller's program may not expect one.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(send(&self.0, bytes, flags)?)
    }
}

impl RegisteredSocket {
    pub(super) fn new(socket: OwnedFd, family: Family) -> Self {
        Self {
            socket: Socket(Arc::new(socket)),
            family,
            registration: None,
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn deregister(&mut self) {
        self.registration = None;
    }

    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let registration = self.register()?;
        loop {
            ready!(registration.poll_read_ready(context))?;
            match registration.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    buffer.advance(read?);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let registration = self.register()?;
        loop {
            ready!(registration.poll_write_ready(context))?;
            match registration.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// The registration, made anew if there is none.
    fn register(&mut self) -> io::Result<&Registration> {
        let registration = match self.registration.take() {
            Some(registration) => registration,
            None => Registration::new(self.socket.0.try_clone()?, self.family)?,
        };
        Ok(self.registration.insert(registration))
    }
}

impl Registration {
    fn new(socket: OwnedFd, family: Family) -> io::Result<Self> {
        match family {
            Family::Tcp => TcpStream::from_std(socket.into()).map(Self::Tcp),
            Family::Unix => UnixStream::from_std(socket.into()).map(Self::Unix),
        }
    }

    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(context),
            Self::Unix(stream) => stream.poll_write_ready(context),
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}
