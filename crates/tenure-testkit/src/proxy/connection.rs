//! One client's connection and the one to the server that belongs to it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::Direction;

/// How soon a write to a peer that does not read notices that the connection shall end.
const WRITE_TICK: Duration = Duration::from_millis(50);

/// Both sockets; they close when both pumps have let go of it.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    ending: AtomicBool,
    lost_bytes: AtomicBool,
    reset_at_reply: AtomicBool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> Self {
        for stream in [&client, &server] {
            // Without it a write could block for ever; if it cannot be set, it is only slower.
            let _ = stream.set_write_timeout(Some(WRITE_TICK));
        }
        Self {
            client,
            server,
            ending: AtomicBool::new(false),
            lost_bytes: AtomicBool::new(false),
            reset_at_reply: AtomicBool::new(false),
        }
    }

    /// Makes both pumps end, and both sockets send RST when they close.
    pub(super) fn reset(&self) {
        reset_when_closed(&self.client);
        reset_when_closed(&self.server);
        self.ending.store(true, Ordering::SeqCst);
        // Says nothing to the peers but wakes the pumps that sleep in `read`.
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = self.server.shutdown(Shutdown::Read);
    }

    /// Ends both sides in order.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Tells the receiving side that no more will come.
    pub(super) fn finish(&self, direction: Direction) {
        let _ = self.target(direction).shutdown(Shutdown::Write);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Whether bytes were swallowed, so that the streams no longer fit each other.
    pub(super) fn lost_bytes(&self) -> bool {
        self.lost_bytes.load(Ordering::SeqCst)
    }

    pub(super) fn set_lost_bytes(&self) {
        self.lost_bytes.store(true, Ordering::SeqCst);
    }

    pub(super) fn resets_at_reply(&self) -> bool {
        self.reset_at_reply.load(Ordering::SeqCst)
    }

    pub(super) fn set_reset_at_reply(&self) {
        self.reset_at_reply.store(true, Ordering::SeqCst);
    }

    /// How long later reads wait; without a limit at first.
    pub(super) fn set_read_limit(
        &self,
        direction: Direction,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        self.source(direction).set_read_timeout(limit)
    }

    /// Reads what there is; `None` if nothing came in time.
    pub(super) fn read(
        &self,
        direction: Direction,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        match self.source(direction).read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_pause(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes everything unless the connection ends meanwhile.
    pub(super) fn write(&self, direction: Direction, mut bytes: &[u8]) -> io::Result<()> {
        let mut target = self.target(direction);
        while !bytes.is_empty() && !self.is_ending() {
            match target.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn source(&self, direction: Direction) -> &TcpStream {
        match direction {
            Direction::Requests => &self.client,
            Direction::Replies => &self.server,
        }
    }

    fn target(&self, direction: Direction) -> &TcpStream {
        match direction {
            Direction::Requests => &self.server,
            Direction::Replies => &self.client,
        }
    }
}

/// Lets a socket send RST instead of an orderly end when it is closed.
pub(super) fn reset_when_closed(stream: &TcpStream) {
    let no_linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // It fails only on a socket whose peer has gone, where there is nobody to send RST to.
    let _ = setsockopt(stream, sockopt::Linger, &no_linger);
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
