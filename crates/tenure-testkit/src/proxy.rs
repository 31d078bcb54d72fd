//! A TCP proxy that breaks connections in precise ways.

mod connection;
mod frames;
mod modes;
mod pump;
mod session;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use connection::Connection;
use modes::{Flow, Modes};

use crate::mutex::lock;
use crate::wait::eventually;

/// How long ended connections may take to close: milliseconds, unless the machine is busy.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);
/// How long a server may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long a server may take to answer pending requests before its connections are moved.
const MOVE_LIMIT: Duration = Duration::from_secs(2);

/// A proxy between clients and a server. It forwards everything by default.
///
/// Each fault can be switched on and off at any time and also affects open connections. *Requests*
/// go from client to server, *replies* from server to client. A *chunk* is the result of one read of
/// a socket: one command from a client that waits for each reply, maybe several from one that
/// pipelines.
///
/// TCP never loses bytes from the middle of a stream. So when a fault that drops bytes ends
/// ([`drop_requests`](Self::drop_requests), [`drop_replies`](Self::drop_replies),
/// [`black_hole`](Self::black_hole)), the affected connections are reset; a client never gets the reply
/// to another request.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// The traffic of a [`Proxy`] so far. Bytes count when they reach the proxy, even if it holds or
/// drops them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Accepted connections, without refused ones.
    pub connections: u64,
    /// Currently open connections.
    pub open_connections: u64,
    /// Bytes from clients.
    pub request_bytes: u64,
    /// Chunks from clients.
    pub request_chunks: u64,
    /// Bytes from the server.
    pub reply_bytes: u64,
    /// Chunks from the server.
    pub reply_chunks: u64,
}

impl Proxy {
    /// Listens on a free port of `127.0.0.1` and forwards to `target`, which need not be up.
    pub fn start(target: SocketAddr) -> Self {
        Self::start_with(target, false)
    }

    /// Like [`start`](Self::start), with support for [`swap_target`](Self::swap_target). Such a proxy
    /// parses the traffic.
    pub fn start_swappable(target: SocketAddr) -> Self {
        Self::start_with(target, true)
    }

    fn start_with(target: SocketAddr, movable: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("failed to bind a port");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::new(target, movable));
        let acceptor = {
            let shared = Arc::clone(&shared);
            start_thread("proxy-accept", move || accept_loop(&listener, &shared))
        };
        Self {
            addr,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// The address for clients.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `redis://127.0.0.1:PORT/`, without credentials.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Changes the target of new connections.
    pub fn set_target(&self, target: SocketAddr) {
        *lock(&self.shared.target) = target;
    }

    /// Forwards everything to another server from now on. Open connections are moved without their
    /// clients noticing, as a Redis-aware proxy does, or an address that moves to another machine with all
    /// its connections. Returns the number of moved connections when all have been moved.
    ///
    /// No request gets the reply to another: a connection is moved when all its commands have been
    /// answered. The new server gets the client's identity and protocol (`AUTH`, `HELLO`, `SELECT`,
    /// `CLIENT SETNAME`), and nothing else. A connection with a subscription or tracking is reset, and so
    /// is one whose server does not answer in time. Only for a [swappable](Self::start_swappable) proxy;
    /// others reset all connections.
    pub fn swap_target(&self, target: SocketAddr) -> usize {
        self.set_target(target);
        let connect = || upstream(target);
        let connections = self.shared.open();
        thread::scope(|scope| {
            let moving: Vec<_> = connections
                .iter()
                .map(|connection| scope.spawn(|| connection.move_to(connect, MOVE_LIMIT)))
                .collect();
            let moved = moving.into_iter().map(thread::ScopedJoinHandle::join);
            moved.filter(|moved| matches!(moved, Ok(true))).count()
        })
    }

    /// Holds requests until [`release_requests`](Self::release_requests).
    pub fn hold_requests(&self) {
        self.modes().requests.held = true;
    }

    /// Delivers the held requests in order, even if their client has disconnected.
    pub fn release_requests(&self) {
        self.modes().requests.held = false;
    }

    /// Holds replies until [`release_replies`](Self::release_replies).
    pub fn hold_replies(&self) {
        self.modes().replies.held = true;
    }

    /// Delivers the held replies in order.
    pub fn release_replies(&self) {
        self.modes().replies.held = false;
    }

    /// Drops requests; the server does not even learn that a client has disconnected.
    pub fn drop_requests(&self) {
        self.modes().requests.dropped = true;
    }

    /// Drops replies: the server executes, but no client gets the reply.
    pub fn drop_replies(&self) {
        self.modes().replies.dropped = true;
    }

    /// Drops everything in both directions and keeps the connections open, like a network whose other
    /// side has vanished. New connections are accepted and equally dead.
    pub fn black_hole(&self) {
        let mut modes = self.modes();
        modes.requests.dropped = true;
        modes.replies.dropped = true;
    }

    /// Ends [`drop_requests`](Self::drop_requests), [`drop_replies`](Self::drop_replies) and
    /// [`black_hole`](Self::black_hole): resets the connections that lost bytes.
    pub fn stop_dropping(&self) {
        {
            let mut modes = self.modes();
            modes.requests.dropped = false;
            modes.replies.dropped = false;
        }
        self.reset_if(Connection::lost_bytes);
    }

    /// Delays each request; zero ends the delay. It preserves order and pipelining.
    pub fn delay_requests(&self, by: Duration) {
        let mut modes = self.modes();
        modes.requests.delay = by;
        modes.requests.delay_spares_first = false;
    }

    /// Like [`delay_requests`](Self::delay_requests), but the first chunk of each connection is not
    /// delayed: a client that connects in two steps completes the first.
    pub fn delay_later_requests(&self, by: Duration) {
        let mut modes = self.modes();
        modes.requests.delay = by;
        modes.requests.delay_spares_first = true;
    }

    /// Delays each reply; zero ends the delay. It preserves order and pipelining.
    pub fn delay_replies(&self, by: Duration) {
        self.modes().replies.delay = by;
    }

    /// Delivers requests byte by byte with a pause after each byte; zero ends this.
    pub fn dribble_requests(&self, pause: Duration) {
        self.modes().requests.dribble = pause;
    }

    /// Delivers replies byte by byte with a pause after each byte; zero ends this.
    pub fn dribble_replies(&self, pause: Duration) {
        self.modes().replies.dribble = pause;
    }

    /// Resets every open connection on both sides (RST, not FIN), and returns when they are closed. Held
    /// data is lost.
    pub fn reset_all(&self) {
        self.reset_if(|_| true);
    }

    /// Closes the client side of every open connection but holds the sent requests until
    /// [`land`](Self::land): the client sees a dead connection while its last request is still in flight.
    /// New connections are not affected. Call it while requests are [held](Self::hold_requests).
    pub fn strand(&self) {
        self.shared.open().iter().for_each(|open| open.strand());
    }

    /// Delivers the requests of [stranded](Self::strand) connections.
    pub fn land(&self) {
        self.shared.open().iter().for_each(|open| open.land());
    }

    /// Forwards the next request and waits until the server begins to reply, so that it was certainly
    /// executed; then resets the connection instead of forwarding the reply. Happens once.
    pub fn reset_after_request(&self) {
        self.reset_after_request_with(b"");
    }

    /// Like [`reset_after_request`](Self::reset_after_request), for the next chunk of requests that
    /// contains `pattern`, such as a key or a command's name.
    pub fn reset_after_request_with(&self, pattern: &[u8]) {
        self.modes().reset_after = Some(pattern.to_vec());
    }

    /// Forwards only the first `bytes` bytes that a client sends next, then resets the connection: a
    /// command cut in the middle. Happens once.
    pub fn cut_request_after(&self, bytes: usize) {
        self.modes().cut_after = Some(bytes);
    }

    /// Resets new connections immediately. Open ones stay.
    pub fn refuse(&self) {
        self.modes().refusing = true;
    }

    /// Ends [`refuse`](Self::refuse).
    pub fn accept(&self) {
        self.modes().refusing = false;
    }

    /// Replaces `from` with `to`, of equal length, everywhere in a chunk of replies; for example to fake
    /// another server version.
    #[track_caller]
    pub fn rewrite_replies(&self, from: &[u8], to: &[u8]) {
        assert_eq!(
            from.len(),
            to.len(),
            "a rewritten reply must keep its length"
        );
        assert!(!from.is_empty(), "nothing to replace");
        self.modes().rewrites.push((from.to_vec(), to.to_vec()));
    }

    /// Like [`rewrite_replies`](Self::rewrite_replies), but not a fault: it stays when faults are
    /// [healed](Self::heal). For servers that announce each other's addresses, so that clients reach each
    /// of them through a proxy.
    #[track_caller]
    pub fn translate_replies(&self, from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len(), "a translation must keep its length");
        assert!(!from.is_empty(), "nothing to replace");
        self.modes().translations.push((from.to_vec(), to.to_vec()));
    }

    /// Ends all faults: delivers held data, resets connections that lost bytes, accepts connections
    /// again and clears armed faults.
    pub fn heal(&self) {
        self.modes().heal();
        self.land();
        self.reset_if(Connection::lost_bytes);
    }

    /// The traffic so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.shared.counters;
        let (requests, replies) = (&counters.requests, &counters.replies);
        Counts {
            connections: counters.connections.load(Ordering::Relaxed),
            open_connections: self.shared.open().len() as u64,
            request_bytes: requests.bytes.load(Ordering::Relaxed),
            request_chunks: requests.chunks.load(Ordering::Relaxed),
            reply_bytes: replies.bytes.load(Ordering::Relaxed),
            reply_chunks: replies.chunks.load(Ordering::Relaxed),
        }
    }

    /// Waits until the counts satisfy `condition`; `false` if they do not within `limit`.
    pub fn wait_for(&self, limit: Duration, condition: impl Fn(Counts) -> bool) -> bool {
        eventually(limit, || condition(self.counts()))
    }

    fn modes(&self) -> MutexGuard<'_, Modes> {
        lock(&self.shared.modes)
    }

    fn reset_if(&self, condition: impl Fn(&Connection) -> bool) {
        let connections = self.shared.open();
        let resetting: Vec<Weak<Connection>> = connections
            .into_iter()
            .filter(|connection| condition(connection))
            .map(|connection| {
                connection.reset();
                Arc::downgrade(&connection)
            })
            .collect();
        let gone = eventually(CLOSE_LIMIT, || {
            resetting.iter().all(|weak| weak.strong_count() == 0)
        });
        assert!(gone, "connections through the proxy did not close");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        // The acceptor blocks in `accept`; a connection wakes it.
        let _ = TcpStream::connect(self.addr);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.shared.open().iter().for_each(|open| open.reset());
    }
}

/// State shared by the threads of a proxy.
#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    /// Whether connections may be moved to another server.
    movable: bool,
    modes: Mutex<Modes>,
    connections: Mutex<Vec<Weak<Connection>>>,
    counters: Counters,
    closing: AtomicBool,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    requests: FlowCounters,
    replies: FlowCounters,
}

#[derive(Debug, Default)]
struct FlowCounters {
    bytes: AtomicU64,
    chunks: AtomicU64,
}

/// The direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

impl Shared {
    fn new(target: SocketAddr, movable: bool) -> Self {
        Self {
            target: Mutex::new(target),
            movable,
            modes: Mutex::default(),
            connections: Mutex::default(),
            counters: Counters::default(),
            closing: AtomicBool::new(false),
        }
    }

    fn open(&self) -> Vec<Arc<Connection>> {
        let connections = lock(&self.connections);
        connections.iter().filter_map(Weak::upgrade).collect()
    }

    fn add(&self, connection: &Arc<Connection>) {
        let mut connections = lock(&self.connections);
        connections.retain(|weak| weak.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    fn flow(&self, direction: Direction) -> Flow {
        *lock(&self.modes).flow(direction)
    }

    fn count(&self, direction: Direction, bytes: usize) {
        let counters = match direction {
            Direction::Requests => &self.counters.requests,
            Direction::Replies => &self.counters.replies,
        };
        counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counters.chunks.fetch_add(1, Ordering::Relaxed);
    }
}

fn accept_loop(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        if lock(&shared.modes).refusing {
            connection::reset_when_closed(&client);
            continue;
        }
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(shared);
        start_thread("proxy-requests", move || serve(client, &shared));
    }
}

/// Forwards one connection: the requests in this thread, the replies in another.
fn serve(client: TcpStream, shared: &Arc<Shared>) {
    let target = *lock(&shared.target);
    let connection = match connect(&client, target) {
        Ok(server) => Arc::new(Connection::new(client, server, shared.movable)),
        Err(_) => return connection::reset_when_closed(&client),
    };
    shared.add(&connection);
    // A swap of the target moves the connections registered by then. This one may have been too late.
    let is_stale = shared.movable && *lock(&shared.target) != target;
    if is_stale || shared.closing.load(Ordering::SeqCst) {
        return connection.reset();
    }
    let replies = pump::Pump::new(&connection, shared, Direction::Replies);
    start_thread("proxy-replies", move || replies.run());
    pump::Pump::new(&connection, shared, Direction::Requests).run();
}

fn connect(client: &TcpStream, target: SocketAddr) -> io::Result<TcpStream> {
    client.set_nodelay(true)?;
    upstream(target)
}

fn upstream(target: SocketAddr) -> io::Result<TcpStream> {
    let server = TcpStream::connect_timeout(&target, CONNECT_LIMIT)?;
    server.set_nodelay(true)?;
    Ok(server)
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.expect("failed to start a thread of the proxy")
}
