//! Requests under locks, over real connections where that matters.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../examples/orders.rs"]
#[expect(dead_code, reason = "its `main` is not run here")]
mod example;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use axum::{Extension, Router};
use http_body_util::{BodyExt, StreamBody};
use tenure::{Fence, LeaseId, Tenure};
use tenure_testkit::RedisServer;
use tenure_tower::LockLayer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tower_service::Service;

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Tenure {
    Tenure::builder(url)
        .name("billing-3")
        .connect()
        .await
        .unwrap()
}

/// The lock `n` for each request.
fn layer(
    tenure: &Tenure,
) -> LockLayer<impl Fn(&axum::http::request::Parts) -> Option<String> + Clone + Send + Sync + 'static>
{
    LockLayer::new(tenure.as_locks(), |_| Some("n".to_owned()))
}

async fn ask(app: &Router) -> Response<Body> {
    let request = Request::get("/").body(Body::empty()).unwrap();
    timeout(LIMIT, app.clone().call(request))
        .await
        .unwrap()
        .unwrap()
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// The lease that holds the lock, or that it is free, as soon as it is so.
async fn becomes(tenure: &Tenure, held: bool) -> Option<LeaseId> {
    let looking = async {
        loop {
            let holder = tenure.lock("n").holder_brief().await.unwrap();
            if holder.is_some() == held {
                break holder.map(|holder| holder.lease);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, looking).await.expect("in time")
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_prints_what_it_says() {
    let server = RedisServer::start();
    for url in ["memory://", &server.url()] {
        let mut out = Vec::new();
        example::run(url, &mut out).await.unwrap();
        let source = include_str!("../examples/orders.rs");
        let said = source.split("//! ```text\n").nth(1).unwrap();
        let said = said.split("//! ```\n").next().unwrap().replace("//! ", "");
        assert_eq!(String::from_utf8(out).unwrap(), said);
    }
}

#[tenure_testkit::test]
async fn a_held_lock_is_answered_with_its_holder() {
    let tenure = client("memory://").await;
    let app = Router::new()
        .route("/", get(async || "done"))
        .layer(layer(&tenure));
    let guard = tenure.lock("n").acquire().await.unwrap();
    let response = ask(&app).await;
    assert_eq!(response.status(), StatusCode::LOCKED);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let problem = text(response).await;
    for part in [
        "\"code\":\"busy\"",
        "\"status\":423",
        "\"left_ms\":",
        "lock `n` was not free",
    ] {
        assert!(problem.contains(part), "no `{part}` in {problem}");
    }
    guard.release().await.unwrap();
    assert_eq!(text(ask(&app).await).await, "done");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_may_wait_for_its_lock() {
    let tenure = client("memory://").await;
    let app = Router::new()
        .route("/", get(async || "done"))
        .layer(layer(&tenure).wait(LIMIT));
    let guard = tenure.lock("n").acquire().await.unwrap();
    let asked = tokio::spawn(async move { text(ask(&app).await).await });
    while tenure.stats().busy < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!asked.is_finished());
    guard.release().await.unwrap();
    assert_eq!(asked.await.unwrap(), "done");
}

#[tenure_testkit::test]
async fn requests_that_need_no_lock_and_names_that_are_none() {
    let tenure = client("memory://").await;
    let named = |name: Option<&'static str>| {
        let lock = LockLayer::new(tenure.as_locks(), move |_| name.map(str::to_owned));
        Router::new().route("/", get(async || "done")).layer(lock)
    };
    let guard = tenure.lock("n").acquire().await.unwrap();
    assert_eq!(text(ask(&named(None)).await).await, "done");
    assert_eq!(
        ask(&named(Some(""))).await.status(),
        StatusCode::UNPROCESSABLE_ENTITY
    );
    guard.release().await.unwrap();
}

#[tenure_testkit::test]
async fn an_unreachable_store_is_answered_with_503() {
    let server = RedisServer::start();
    let builder = Tenure::builder(server.url()).unreachable_after(Duration::from_millis(200));
    let tenure = builder.connect().await.unwrap();
    let app = Router::new()
        .route("/", get(async || "done"))
        .layer(layer(&tenure).wait(LIMIT));
    server.kill();
    let response = ask(&app).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
}

#[tenure_testkit::test]
async fn the_fence_is_an_extension() {
    let tenure = client("memory://").await;
    let fence = async |Extension(fence): Extension<Fence>| fence.get().to_string();
    let app = Router::new()
        .route("/", get(fence))
        .layer(layer(&tenure).wait(LIMIT));
    let first: u64 = text(ask(&app).await).await.parse().unwrap();
    let second: u64 = text(ask(&app).await).await.parse().unwrap();
    assert!(second > first);
}

/// Held until the last byte of the response was taken, or the response is dropped.
#[tenure_testkit::test]
async fn the_lock_is_held_until_the_response_is_done() {
    let tenure = client("memory://").await;
    for is_read in [true, false] {
        let (frames, app) = streaming(&tenure);
        let mut response = ask(&app).await;
        frames.send(Bytes::from("a")).unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "a");
        assert!(tenure.lock("n").is_locked().await.unwrap());
        if is_read {
            drop(frames);
            assert!(response.body_mut().frame().await.is_none());
            becomes(&tenure, false).await;
        } else {
            drop(response);
            becomes(&tenure, false).await;
        }
    }
}

/// An app whose one response is what is sent into the channel.
fn streaming(tenure: &Tenure) -> (mpsc::UnboundedSender<Bytes>, Router) {
    let (frames, received) = mpsc::unbounded_channel::<Bytes>();
    let received = Arc::new(tokio::sync::Mutex::new(Some(received)));
    let answer = move || {
        let received = Arc::clone(&received);
        async move {
            let mut received = received.lock().await.take().unwrap();
            let frames = poll_stream(move |context| received.poll_recv(context));
            Body::new(StreamBody::new(frames))
        }
    };
    let app = Router::new().route("/", get(answer)).layer(layer(tenure));
    (frames, app)
}

/// A stream of frames.
fn poll_stream(
    mut next: impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<Bytes>> + Send + 'static,
) -> impl futures_util::Stream<Item = Result<http_body::Frame<Bytes>, Infallible>> + Send {
    futures_util::stream::poll_fn(move |context| {
        next(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    })
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An app whose handler hangs, what tells that it has begun, and whether it was dropped.
fn hanging(tenure: &Tenure) -> (Arc<Notify>, Arc<AtomicBool>, Router) {
    let has_begun = Arc::new(Notify::new());
    let begun = Arc::clone(&has_begun);
    let is_dropped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_dropped);
    let hang = move || {
        let dropped = Dropped(Arc::clone(&told));
        let begun = Arc::clone(&begun);
        async move {
            begun.notify_one();
            let _dropped = dropped;
            Notify::new().notified().await;
            "never"
        }
    };
    (
        has_begun,
        is_dropped,
        Router::new().route("/", get(hang)).layer(layer(tenure)),
    )
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_stops_the_call() {
    let server = RedisServer::start();
    let (tenure, admin) = (client(&server.url()).await, client(&server.url()).await);
    let (has_begun, is_dropped, app) = hanging(&tenure);
    let asked = tokio::spawn(async move { ask(&app).await });
    timeout(LIMIT, has_begun.notified())
        .await
        .expect("it begins");
    let lease = becomes(&admin, true).await.unwrap();
    admin.force_release("n", &lease).await.unwrap();
    let response = asked.await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(is_dropped.load(Ordering::SeqCst));
    let problem = text(response).await;
    assert!(problem.contains("\"code\":\"lock_lost\""), "{problem}");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_breaks_the_response_off() {
    let server = RedisServer::start();
    let (tenure, admin) = (client(&server.url()).await, client(&server.url()).await);
    let (frames, app) = streaming(&tenure);
    let mut response = ask(&app).await;
    frames.send(Bytes::from("a")).unwrap();
    response.body_mut().frame().await.unwrap().unwrap();
    let lease = becomes(&admin, true).await.unwrap();
    admin.force_release("n", &lease).await.unwrap();
    let frame = timeout(LIMIT, response.body_mut().frame()).await.unwrap();
    let error = frame.unwrap().unwrap_err().to_string();
    assert!(error.contains("lock `n` was lost"), "{error}");
}

/// A client that goes away: the server drops the request, and the lock is free.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_frees_the_lock() {
    let tenure = client("memory://").await;
    let (has_begun, is_dropped, app) = hanging(&tenure);
    let address = served(app).await;
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection
        .write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        .await
        .unwrap();
    timeout(LIMIT, has_begun.notified())
        .await
        .expect("it begins");
    drop(connection);
    becomes(&tenure, false).await;
    assert!(is_dropped.load(Ordering::SeqCst));
}

/// The connection stays open, but the response is complete.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_was_sent_frees_the_lock() {
    let tenure = client("memory://").await;
    let app = Router::new()
        .route("/", get(async || "done"))
        .layer(layer(&tenure));
    let address = served(app).await;
    let mut connection = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        connection
            .write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            .await
            .unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"done") {
            let mut buffer = [0; 1_024];
            let read = timeout(LIMIT, connection.read(&mut buffer))
                .await
                .unwrap()
                .unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&buffer[..read]);
        }
        assert!(said.starts_with(b"HTTP/1.1 200"));
        becomes(&tenure, false).await;
    }
}

async fn served(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}
