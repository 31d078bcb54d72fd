//! The byte stream below a connection: TCP, TLS over TCP, or a Unix socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

#[cfg(feature = "tls")]
use tokio::io::AsyncWrite;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, tcp};
#[cfg(unix)]
use tokio::net::{UnixStream, unix};

/// A stream, driven by the runtime that opened it.
pub(in crate::store::redis) enum Stream {
    Tcp(tcp::OwnedReadHalf, Writer),
    #[cfg(unix)]
    Unix(unix::OwnedReadHalf, Writer),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// The side of a stream that any thread may write to.
#[derive(Clone)]
pub(in crate::store::redis) enum Writer {
    Tcp(Arc<tcp::OwnedWriteHalf>),
    #[cfg(unix)]
    Unix(Arc<unix::OwnedWriteHalf>),
}

impl Stream {
    pub(in crate::store::redis) fn tcp(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self::Tcp(read, Writer::Tcp(Arc::new(write)))
    }

    #[cfg(unix)]
    pub(in crate::store::redis) fn unix(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self::Unix(read, Writer::Unix(Arc::new(write)))
    }

    /// `None` with TLS: only the driver can write then.
    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unnecessary_wraps, reason = "without TLS there is always one")
    )]
    pub(super) fn writer(&self) -> Option<Writer> {
        match self {
            Self::Tcp(_, writer) => Some(writer.clone()),
            #[cfg(unix)]
            Self::Unix(_, writer) => Some(writer.clone()),
            #[cfg(feature = "tls")]
            Self::Tls(_) => None,
        }
    }

    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream, _) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(unix)]
            Self::Unix(stream, _) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(_, writer) => writer.poll_write(context, bytes),
            #[cfg(unix)]
            Self::Unix(_, writer) => writer.poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// Sends what TLS has buffered.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            _ => {
                let _ = context;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Writer {
    /// Writes what the socket takes now.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(context))?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.as_ref().as_ref().poll_write_ready(context),
            #[cfg(unix)]
            Self::Unix(stream) => stream.as_ref().as_ref().poll_write_ready(context),
        }
    }
}
