//! Accepting connections, and ending them in time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Extensions, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may leave sent data unacknowledged, in milliseconds.
const STALLED_MS: u32 = 30_000;
/// How long requests in progress may take once the service stops.
const STOP_WITHIN: Duration = Duration::from_millis(1_500);
/// File descriptors reserved for other uses: backends, the ledger, the playground's threads.
const OWN_FILES: usize = 200;
/// How long to wait when no connection can be accepted, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(SocketAddr);

impl Peer {
    /// The peer address of a request: of our own connections, or as reported by another axum
    /// server.
    pub(crate) fn of(extensions: &Extensions) -> Option<SocketAddr> {
        let ours = extensions.get().map(|Peer(from)| *from);
        let given = || extensions.get().map(|ConnectInfo(from)| *from);
        ours.or_else(given)
    }
}

/// Serves until it is stopped, and then finishes requests in progress.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    connections_max: usize,
    stop: CancellationToken,
) {
    let places = connections_max.clamp(1, files_for_connections());
    let places = Arc::new(Semaphore::new(places));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok(accepted) => attend(accepted, router.clone(), &graceful),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(STOP_WITHIN, graceful.shutdown()).await;
}

/// A connection with its permit.
struct Accepted {
    socket: TcpStream,
    from: SocketAddr,
    place: Option<OwnedSemaphorePermit>,
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<Accepted> {
    let place = Arc::clone(places).acquire_owned().await.ok();
    let (socket, from) = listener.accept().await?;
    socket.set_nodelay(true)?;
    // The kernel closes a connection whose peer reads nothing: unsent data takes memory.
    set_tcp_user_timeout(&socket, STALLED_MS)?;
    Ok(Accepted {
        socket,
        from,
        place,
    })
}

fn attend(accepted: Accepted, router: Router, graceful: &GracefulShutdown) {
    let Accepted {
        socket,
        from,
        place,
    } = accepted;
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(from));
        router.clone().call(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    let timed = builder.timer(TokioTimer::new());
    let timed = timed.header_read_timeout(HEAD_WITHIN);
    let connection = timed.serve_connection(TokioIo::new(socket), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // Nothing to report for a client that disconnects or speaks no HTTP.
        let _ = connection.await;
        drop(place);
    });
}

/// How many connections the file descriptors allow, after raising their limit.
fn files_for_connections() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let files = files.unwrap_or(Semaphore::MAX_PERMITS);
    files
        .saturating_sub(OWN_FILES)
        .clamp(1, Semaphore::MAX_PERMITS)
}
