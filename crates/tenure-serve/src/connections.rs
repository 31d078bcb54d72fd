//! Accepting connections, and ending them in time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Extensions, Request};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::places::{Places, RESERVE, Reserve};
use crate::problem::{Kind, Problem};
use crate::settings::Settings;

/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may leave sent data unacknowledged, in milliseconds.
const STALLED_MS: u32 = 30_000;
/// How long a connection without a place may take in all.
const VISIT_WITHIN: Duration = Duration::from_secs(2);
/// How many bytes a connection keeps of a request's head, and of what its client does not read.
const BUFFER_MAX: usize = 65_536;
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
    settings: &Settings,
    stop: CancellationToken,
) {
    let places = Places::new(&settings.limits, files_for_connections());
    let mut reserve = Reserve::default();
    let health = ["/livez", "/readyz"].map(|path| format!("{}{path}", settings.base_path));
    let health = Arc::new(health);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = stop.cancelled() => break,
        };
        let Ok((socket, from)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Some(place) = places.take(from.ip()) {
            let connection = attend(socket, from, router.clone(), &graceful);
            tokio::spawn(async move {
                connection.await;
                drop(place);
            });
            continue;
        }
        let visit = reserve.enter().await;
        let connection = attend_briefly(socket, from, router.clone(), Arc::clone(&health));
        tokio::spawn(async move {
            let ending = visit.clone().drop_guard();
            let _ = timeout(VISIT_WITHIN, visit.run_until_cancelled(connection)).await;
            drop(ending);
        });
    }
    drop(listener);
    let _ = timeout(STOP_WITHIN, graceful.shutdown()).await;
}

async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, from) = listener.accept().await?;
    socket.set_nodelay(true)?;
    // The kernel closes a connection whose peer reads nothing: unsent data takes memory.
    set_tcp_user_timeout(&socket, STALLED_MS)?;
    Ok((socket, from))
}

fn attend(
    socket: TcpStream,
    from: SocketAddr,
    router: Router,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + use<> {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(from));
        router.clone().call(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    let timed = builder.timer(TokioTimer::new()).max_buf_size(BUFFER_MAX);
    let timed = timed.header_read_timeout(HEAD_WITHIN);
    let connection = timed.serve_connection(TokioIo::new(socket), service);
    let connection = graceful.watch(connection);
    async move {
        // Nothing to report for a client that disconnects or speaks no HTTP.
        let _ = connection.await;
    }
}

/// Serves one request of a connection without a place: it may only ask for the health of the service.
fn attend_briefly(
    socket: TcpStream,
    from: SocketAddr,
    router: Router,
    health: Arc<[String; 2]>,
) -> impl Future<Output = ()> {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(from));
        let mut router = router.clone();
        let is_health = health.iter().any(|path| path == request.uri().path());
        async move {
            if is_health {
                return router.call(request.map(Body::new)).await;
            }
            let detail = "too many connections, of your address or of all: close some, retry later, \
                          or raise --max-connections and --max-connections-per-address";
            let refusal = Problem::new(Kind::TOO_MANY, detail).retry_after(Duration::from_secs(1));
            Ok(refusal.into_response())
        }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_MAX).keep_alive(false);
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    async move {
        let _ = connection.await;
    }
}

/// How many connections the file descriptors allow, after raising their limit.
fn files_for_connections() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    let files = files.unwrap_or(usize::MAX);
    files.saturating_sub(OWN_FILES + RESERVE).max(1)
}
