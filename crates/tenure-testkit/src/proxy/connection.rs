//! A client connection and its server connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::Direction;
use super::session::Session;
use crate::mutex::lock;

/// How often a blocked write checks whether the connection is to end.
const WRITE_TICK: Duration = Duration::from_millis(50);
/// How often to check whether all commands have been answered.
const DRAIN_TICK: Duration = Duration::from_millis(1);
/// How long the new server may take to answer the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);

/// Both sockets; they close when both pumps have dropped this.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    /// Replaced when the connection is moved.
    server: Mutex<Arc<TcpStream>>,
    /// How often it was moved.
    moves: AtomicU64,
    /// The client's session, if the connection is movable. Locked while requests are written.
    session: Option<Mutex<Session>>,
    /// Commands sent and not yet answered.
    unanswered: AtomicI64,
    /// About to be moved: requests are held.
    draining: AtomicBool,
    ending: AtomicBool,
    lost_bytes: AtomicBool,
    reset_at_reply: AtomicBool,
    stranded: AtomicBool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream, movable: bool) -> Self {
        for stream in [&client, &server] {
            // Without it a write could block forever. Errors are ignored: ending is only slower then.
            let _ = stream.set_write_timeout(Some(WRITE_TICK));
        }
        Self {
            client,
            server: Mutex::new(Arc::new(server)),
            moves: AtomicU64::new(0),
            session: movable.then(Mutex::default),
            unanswered: AtomicI64::new(0),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            lost_bytes: AtomicBool::new(false),
            reset_at_reply: AtomicBool::new(false),
            stranded: AtomicBool::new(false),
        }
    }

    /// Ends both pumps and makes both sockets send RST when they close.
    pub(super) fn reset(&self) {
        let server = self.server();
        reset_when_closed(&self.client);
        reset_when_closed(&server);
        self.ending.store(true, Ordering::SeqCst);
        // Invisible to the peers, but wakes the pumps that block in `read`.
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = server.shutdown(Shutdown::Read);
    }

    /// Closes both sides with FIN.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server().shutdown(Shutdown::Both);
    }

    /// Moves the connection to another server without the client noticing: no request is lost and no
    /// reply is mixed up. Requests wait until the old server has answered all earlier ones; the handshake
    /// is replayed to the new one. A client with a subscription is reset, and so is one whose server does
    /// not answer within `limit`. Returns whether it was moved.
    pub(super) fn move_to(
        &self,
        connect: impl Fn() -> io::Result<TcpStream>,
        limit: Duration,
    ) -> bool {
        let Some(session) = &self.session else {
            self.reset();
            return false;
        };
        self.draining.store(true, Ordering::SeqCst);
        let end = Instant::now() + limit;
        let mut moved = false;
        while !moved && !self.is_ending() {
            // A pump that is blocked in a write keeps it locked.
            let quiet = session.try_lock().ok().filter(|session| {
                let answered = self.unanswered.load(Ordering::SeqCst) <= 0;
                answered && (session.is_between_commands() || session.has_subscription())
            });
            match quiet {
                Some(session) if !session.has_subscription() => {
                    match connect_with_handshake(&session, &connect) {
                        Ok(server) => {
                            self.replace_server(server);
                            moved = true;
                        }
                        Err(_) => self.reset(),
                    }
                }
                Some(_) => self.reset(),
                None if Instant::now() >= end => self.reset(),
                None => thread::sleep(DRAIN_TICK),
            }
        }
        self.draining.store(false, Ordering::SeqCst);
        moved
    }

    fn replace_server(&self, server: TcpStream) {
        let _ = server.set_write_timeout(Some(WRITE_TICK));
        let old = std::mem::replace(&mut *lock(&self.server), Arc::new(server));
        self.moves.fetch_add(1, Ordering::SeqCst);
        // Wakes the pump that waits for its replies; no more will come.
        let _ = old.shutdown(Shutdown::Both);
    }

    /// How often the connection was moved so far.
    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(super) fn is_movable(&self) -> bool {
        self.session.is_some()
    }

    /// Counts replies from the server.
    pub(super) fn note_replies(&self, count: i64) {
        self.unanswered.fetch_sub(count, Ordering::SeqCst);
    }

    /// Closes the client side only. Its requests are held until [`land`](Self::land).
    pub(super) fn strand(&self) {
        self.stranded.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
    }

    /// Delivers the requests of a stranded client.
    pub(super) fn land(&self) {
        self.stranded.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_stranded(&self) -> bool {
        self.stranded.load(Ordering::SeqCst)
    }

    /// Signals the end of the stream to the receiving side.
    pub(super) fn finish(&self, direction: Direction) {
        let _ = match direction {
            Direction::Requests => self.server().shutdown(Shutdown::Write),
            Direction::Replies => self.client.shutdown(Shutdown::Write),
        };
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Whether bytes were dropped, so that requests and replies no longer match.
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

    /// Sets the timeout of later reads; none at first.
    pub(super) fn set_read_limit(
        &self,
        direction: Direction,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        match direction {
            Direction::Requests => self.client.set_read_timeout(limit),
            Direction::Replies => self.server().set_read_timeout(limit),
        }
    }

    /// Reads available bytes; `None` after a timeout.
    pub(super) fn read(
        &self,
        direction: Direction,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let read = match direction {
            Direction::Requests => (&self.client).read(buffer),
            Direction::Replies => (&*self.server()).read(buffer),
        };
        match read {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes everything unless the connection ends meanwhile.
    pub(super) fn write(&self, direction: Direction, bytes: &[u8]) -> io::Result<()> {
        if direction == Direction::Replies {
            return self.write_all(&self.client, bytes);
        }
        let mut session = self.session.as_ref().map(lock);
        if let Some(session) = &mut session {
            let commands = i64::try_from(session.record(bytes)).unwrap_or(i64::MAX);
            self.unanswered.fetch_add(commands, Ordering::SeqCst);
        }
        self.write_all(&self.server(), bytes)
    }

    fn write_all(&self, mut target: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && !self.is_ending() {
            match target.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn server(&self) -> Arc<TcpStream> {
        Arc::clone(&lock(&self.server))
    }
}

/// Connects to another server and replays the handshake.
fn connect_with_handshake(
    session: &Session,
    connect: impl Fn() -> io::Result<TcpStream>,
) -> io::Result<TcpStream> {
    let server = connect()?;
    server.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
    session.replay_handshake(&server)?;
    server.set_read_timeout(None)?;
    Ok(server)
}

/// Makes a socket send RST instead of FIN when it is closed.
pub(super) fn reset_when_closed(stream: &TcpStream) {
    let no_linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // It fails only if the peer is gone, and then no RST is needed.
    let _ = setsockopt(stream, sockopt::Linger, &no_linger);
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
