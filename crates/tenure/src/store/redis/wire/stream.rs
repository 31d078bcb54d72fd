//! The byte stream below a connection: a plain socket, or TLS over one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

#[cfg(unix)]
use super::socket::{Family, RegisteredSocket, Socket};

/// A stream, driven by the runtime that opened it.
pub(in crate::store::redis) enum Stream {
    /// TCP or a Unix socket: any thread may read and write it.
    #[cfg(unix)]
    Socket(RegisteredSocket),
    /// TLS, and TCP where there is no Unix: only the driver can use it.
    #[cfg_attr(
        all(unix, not(feature = "tls")),
        expect(dead_code, reason = "without TLS every stream is a socket")
    )]
    Driven(Pin<Box<dyn ReadWrite>>),
}

/// What a stream that only the driver uses must do.
pub(in crate::store::redis) trait ReadWrite:
    AsyncRead + AsyncWrite + Send
{
}

impl<T: AsyncRead + AsyncWrite + Send> ReadWrite for T {}

impl Stream {
    /// # Errors
    ///
    /// If the runtime cannot give the socket away.
    #[cfg(unix)]
    pub(in crate::store::redis) fn tcp(stream: TcpStream) -> io::Result<Self> {
        let socket = stream.into_std()?.into();
        Ok(Self::Socket(RegisteredSocket::new(socket, Family::Tcp)))
    }

    /// # Errors
    ///
    /// None here.
    #[cfg(not(unix))]
    pub(in crate::store::redis) fn tcp(stream: TcpStream) -> io::Result<Self> {
        Ok(Self::driven(stream))
    }

    /// # Errors
    ///
    /// If the runtime cannot give the socket away.
    #[cfg(unix)]
    pub(in crate::store::redis) fn unix(stream: UnixStream) -> io::Result<Self> {
        let socket = stream.into_std()?.into();
        Ok(Self::Socket(RegisteredSocket::new(socket, Family::Unix)))
    }

    #[cfg(any(feature = "tls", not(unix)))]
    pub(in crate::store::redis) fn driven(stream: impl ReadWrite + 'static) -> Self {
        Self::Driven(Box::pin(stream))
    }

    /// The socket, if any thread may use it.
    #[cfg(unix)]
    pub(super) fn socket(&self) -> Option<Socket> {
        match self {
            Self::Socket(registered) => Some(registered.socket().clone()),
            Self::Driven(_) => None,
        }
    }

    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            #[cfg(unix)]
            Self::Socket(socket) => socket.poll_read(context, buffer),
            Self::Driven(stream) => stream.as_mut().poll_read(context, buffer),
        }
    }

    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            #[cfg(unix)]
            Self::Socket(socket) => socket.poll_write(context, bytes),
            Self::Driven(stream) => stream.as_mut().poll_write(context, bytes),
        }
    }

    /// Sends what TLS has buffered.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            #[cfg(unix)]
            Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Driven(stream) => stream.as_mut().poll_flush(context),
        }
    }

    /// Lets callers read the socket for themselves: its runtime is no longer woken by what arrives,
    /// until it reads or writes again.
    pub(super) fn rest(&mut self) {
        #[cfg(unix)]
        if let Self::Socket(socket) = self {
            socket.deregister();
        }
    }
}
