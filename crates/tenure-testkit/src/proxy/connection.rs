//! One client's connection and the one to the server that belongs to it.

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

/// How soon a write to a peer that does not read notices that the connection shall end.
const WRITE_TICK: Duration = Duration::from_millis(50);
/// How often it is looked whether all commands have been answered.
const DRAIN_TICK: Duration = Duration::from_millis(1);
/// How long another server may take to answer a greeting.
const GREET_LIMIT: Duration = Duration::from_secs(2);

/// Both sockets; they close when both pumps have let go of it.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    /// Another one, if the connection was moved.
    server: Mutex<Arc<TcpStream>>,
    /// How often it was moved.
    moves: AtomicU64,
    /// What its server was told, if it may be moved. Locked while requests are written.
    session: Option<Mutex<Session>>,
    /// Commands that were sent and not answered yet.
    unanswered: AtomicI64,
    /// About to be moved: requests are kept.
    draining: AtomicBool,
    ending: AtomicBool,
    lost_bytes: AtomicBool,
    reset_at_reply: AtomicBool,
    stranded: AtomicBool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream, movable: bool) -> Self {
        for stream in [&client, &server] {
            // Without it a write could block for ever; if it cannot be set, it is only slower.
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

    /// Makes both pumps end, and both sockets send RST when they close.
    pub(super) fn reset(&self) {
        let server = self.server();
        reset_when_closed(&self.client);
        reset_when_closed(&server);
        self.ending.store(true, Ordering::SeqCst);
        // Says nothing to the peers but wakes the pumps that sleep in `read`.
        let _ = self.client.shutdown(Shutdown::Read);
        let _ = server.shutdown(Shutdown::Read);
    }

    /// Ends both sides in order.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server().shutdown(Shutdown::Both);
    }

    /// Moves the connection to another server, which its client does not notice: no request is lost
    /// and no reply is another's. Requests wait until the old server has answered all before them;
    /// the new one is greeted as the old one was. A client that listens is reset, and so is one
    /// whose server does not answer within `limit`. Tells whether it was moved.
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
            // A pump that cannot write keeps it locked.
            let quiet = session.try_lock().ok().filter(|session| {
                let answered = self.unanswered.load(Ordering::SeqCst) <= 0;
                answered && (session.is_between_commands() || session.listens())
            });
            match quiet {
                Some(session) if !session.listens() => match greeted(&session, &connect) {
                    Ok(server) => {
                        self.replace_server(server);
                        moved = true;
                    }
                    Err(_) => self.reset(),
                },
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
        // Wakes the pump that waits for its replies; there are none to come.
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

    /// Takes note of replies that came from the server.
    pub(super) fn note_replies(&self, count: i64) {
        self.unanswered.fetch_sub(count, Ordering::SeqCst);
    }

    /// Ends the client's side only. What it had sent is kept until [`land`](Self::land).
    pub(super) fn strand(&self) {
        self.stranded.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
    }

    /// Lets what a gone client had sent reach the server.
    pub(super) fn land(&self) {
        self.stranded.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_stranded(&self) -> bool {
        self.stranded.load(Ordering::SeqCst)
    }

    /// Tells the receiving side that no more will come.
    pub(super) fn finish(&self, direction: Direction) {
        let _ = match direction {
            Direction::Requests => self.server().shutdown(Shutdown::Write),
            Direction::Replies => self.client.shutdown(Shutdown::Write),
        };
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
        match direction {
            Direction::Requests => self.client.set_read_timeout(limit),
            Direction::Replies => self.server().set_read_timeout(limit),
        }
    }

    /// Reads what there is; `None` if nothing came in time.
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
            Err(error) if is_pause(&error) => Ok(None),
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
            let commands = i64::try_from(session.note(bytes)).unwrap_or(i64::MAX);
            self.unanswered.fetch_add(commands, Ordering::SeqCst);
        }
        self.write_all(&self.server(), bytes)
    }

    fn write_all(&self, mut target: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && !self.is_ending() {
            match target.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn server(&self) -> Arc<TcpStream> {
        Arc::clone(&lock(&self.server))
    }
}

/// A connection to another server that has been told all that the first one was.
fn greeted(
    session: &Session,
    connect: impl Fn() -> io::Result<TcpStream>,
) -> io::Result<TcpStream> {
    let server = connect()?;
    server.set_read_timeout(Some(GREET_LIMIT))?;
    session.greet(&server)?;
    server.set_read_timeout(None)?;
    Ok(server)
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
