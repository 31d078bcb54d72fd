//! Keeps one connection to a server, and reconnects when it breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::command::Cmd;
use super::connection::Connection;
use super::server::Server;
use super::wire::{Push, Stream, Wire, WireError};
use super::{server_error, tls};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::Failure;
use crate::url::{Address, RedisTarget};

/// How long connecting may take, handshake included.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait after a failed attempt to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Keeps one connection to a server.
#[derive(Clone)]
pub(crate) struct Reconnector {
    shared: Arc<ReconnectorInner>,
}

struct ReconnectorInner {
    server: Arc<Server>,
    state: watch::Sender<ConnectionState>,
    /// Where pushes of the server go.
    pushes: Option<mpsc::UnboundedSender<Push>>,
    /// The first command on a new connection; an error reply to it does not close the connection.
    setup: Option<fn() -> Cmd>,
    /// Whether the setup command was accepted on the current connection.
    set_up: AtomicBool,
    /// The engine, if another runtime makes and drives the connections.
    engine: Option<Handle>,
}

enum ConnectionState {
    Idle,
    Failed { at: Moment, failure: Failure },
    Connecting,
    Live(Arc<Connection>),
}

impl Reconnector {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self::build(server, None, None, None)
    }

    /// The connections are driven by the runtime that asks for them.
    pub(crate) fn driven_elsewhere(server: Arc<Server>, engine: Handle) -> Self {
        Self::build(server, None, None, Some(engine))
    }

    /// The server may also push messages.
    pub(crate) fn with_pushes(
        server: Arc<Server>,
        pushes: mpsc::UnboundedSender<Push>,
        setup: Option<fn() -> Cmd>,
    ) -> Self {
        Self::build(server, Some(pushes), setup, None)
    }

    fn build(
        server: Arc<Server>,
        pushes: Option<mpsc::UnboundedSender<Push>>,
        setup: Option<fn() -> Cmd>,
        engine: Option<Handle>,
    ) -> Self {
        Self {
            shared: Arc::new(ReconnectorInner {
                server,
                state: watch::Sender::new(ConnectionState::Idle),
                pushes,
                setup,
                set_up: AtomicBool::new(false),
                engine,
            }),
        }
    }

    /// The current connection, if there is one.
    pub(crate) fn live(&self) -> Option<Arc<Connection>> {
        match &*self.shared.state.borrow() {
            ConnectionState::Live(connection) if !connection.is_broken() => {
                Some(Arc::clone(connection))
            }
            _ => None,
        }
    }

    /// Whether the server accepted the setup command.
    pub(crate) fn is_set_up(&self) -> bool {
        self.shared.set_up.load(Ordering::Relaxed)
    }

    /// A connection, made if there is none.
    pub(crate) async fn connection(&self, limit: Moment) -> Result<Arc<Connection>, Failure> {
        let mut states = self.shared.state.subscribe();
        let asked_at = self.now();
        loop {
            if let Some(connection) = self.live() {
                return Ok(connection);
            }
            if let Some(failure) = self.recent_failure(asked_at) {
                return Err(failure);
            }
            states.mark_unchanged();
            self.begin_connecting();
            let left = limit.saturating_since(self.now());
            if tokio::time::timeout(left, states.changed()).await.is_err() {
                return Err(Failure::not_sent(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "cannot connect to `{}` in time: is the host correct, is there a \
                         firewall in between, and do URL and port agree on TLS?",
                        self.shared.server
                    ),
                )));
            }
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.shared.server.clock.now()
    }

    /// A failure that also answers a caller that started at `asked_at`: it is newer, or so recent
    /// that another attempt would be pointless.
    fn recent_failure(&self, asked_at: Moment) -> Option<Failure> {
        match &*self.shared.state.borrow() {
            ConnectionState::Failed { at, failure } if *at + CONNECT_PAUSE > asked_at => {
                Some(failure.share())
            }
            _ => None,
        }
    }

    /// Connects in the background, if there is no connection.
    pub(super) fn begin_connecting(&self) {
        let begun = self.shared.state.send_if_modified(|state| {
            let idle = match state {
                ConnectionState::Connecting => false,
                ConnectionState::Live(connection) => connection.is_broken(),
                ConnectionState::Idle | ConnectionState::Failed { .. } => true,
            };
            if idle {
                *state = ConnectionState::Connecting;
            }
            idle
        });
        if begun {
            let shared = Arc::clone(&self.shared);
            // On a task of its own: a caller with little time must not end an attempt that others
            // wait for.
            tokio::spawn(async move { shared.connect().await });
        }
    }
}

impl ReconnectorInner {
    async fn connect(&self) {
        let attempt = tokio::time::timeout(CONNECT_LIMIT, self.try_connect());
        let state = match attempt.await {
            Ok(Ok(connection)) => {
                let connection = Arc::new(connection);
                connection.watch_replies(self.engine.as_ref());
                ConnectionState::Live(connection)
            }
            Ok(Err(failure)) => self.failed(failure),
            Err(_) => self.failed(server_error::no_reply(&*self.server, None)),
        };
        self.state.send_replace(state);
    }

    fn failed(&self, failure: Failure) -> ConnectionState {
        tracing::debug!(server = %self.server, error = %failure.error, "redis.unreachable");
        ConnectionState::Failed {
            at: self.server.clock.now(),
            failure,
        }
    }

    async fn try_connect(&self) -> Result<Connection, Failure> {
        let endpoint = self.server.locate().await?;
        let stream = open(&endpoint.target).await?;
        let wire = Wire::new(stream, self.pushes.clone());
        let connection = Connection::new(&self.server, &endpoint, wire);
        connection.log_in().await?;
        connection.handshake().await?;
        if let Some(setup) = self.setup {
            let accepted = connection.run_setup(&setup()).await;
            self.set_up.store(accepted, Ordering::Relaxed);
        }
        Ok(connection)
    }
}

/// Opens a stream that the current runtime drives.
async fn open(target: &RedisTarget) -> Result<Stream, Failure> {
    let refused =
        |error: std::io::Error| server_error::from_wire(target, &WireError::from(error), None);
    match &target.address {
        Address::Tcp { host, port } => {
            let stream = open_tcp(host, *port).await.map_err(refused)?;
            Stream::tcp(stream).map_err(refused)
        }
        Address::Tls { host, port, tls } => {
            let config = tls::config(target, tls)?;
            let stream = open_tcp(host, *port).await.map_err(refused)?;
            tls::handshake(config, host, stream).await.map_err(refused)
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(refused)?;
            Stream::unix(stream).map_err(refused)
        }
        #[cfg(not(unix))]
        Address::Unix(_) => Err(refused(std::io::ErrorKind::Unsupported.into())),
    }
}

async fn open_tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // The kernel would wait for an acknowledgement of the last write before it sends the next.
    stream.set_nodelay(true)?;
    Ok(stream)
}
