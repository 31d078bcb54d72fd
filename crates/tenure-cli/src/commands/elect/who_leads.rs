//! Tells over HTTP who leads, for sidecars.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::http::{Method, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tenure::{ClientId, Locks, Observer};
use tenure_view::leaders::LeaderReport;
use tokio::net::TcpListener;

use super::cannot_listen;

/// What is known: who leads, or why that is unknown.
type Known = Arc<Mutex<Result<Answer, String>>>;

#[derive(Clone, Serialize)]
struct Answer {
    #[serde(flatten)]
    leader: LeaderReport,
    is_me: bool,
}

/// Starts to observe the election and to answer, until the process ends.
pub async fn serve(address: SocketAddr, locks: &Locks, name: &str) -> Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| cannot_listen(address, &error))?;
    let observer = locks.election(name).observe()?;
    let known = Arc::new(Mutex::new(Err("it has not looked yet".to_owned())));
    tokio::spawn(observe(
        observer,
        name.to_owned(),
        locks.id(),
        Arc::clone(&known),
    ));
    tokio::spawn(accept(listener, known));
    Ok(())
}

async fn observe(mut observer: Observer, name: String, me: ClientId, known: Known) {
    loop {
        let (news, is_over) = match observer.next().await {
            Ok(leader) => {
                let answer = Answer {
                    is_me: leader.as_ref().and_then(tenure::Leader::client) == Some(me),
                    leader: LeaderReport::of(&name, leader.as_ref()),
                };
                (Ok(answer), false)
            }
            Err(error) => {
                let is_over = error.kind() == tenure::ErrorKind::Closed;
                (Err(error.to_string()), is_over)
            }
        };
        *known.lock().unwrap_or_else(PoisonError::into_inner) = news;
        if is_over {
            return;
        }
    }
}

async fn accept(listener: TcpListener, known: Known) {
    loop {
        // Too many open files, for example: others will be closed.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let known = Arc::clone(&known);
        tokio::spawn(async move {
            let answering = service_fn(move |request: Request<_>| {
                let answer = answer(request.method(), &known);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), answering);
            // A client that goes away is no problem of ours.
            let _ = connection.await;
        });
    }
}

fn answer(method: &Method, known: &Known) -> Response<Full<Bytes>> {
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, body) = match &*known {
        _ if method != Method::GET && method != Method::HEAD => {
            let error = serde_json::json!({"error": "only GET is answered"});
            (StatusCode::METHOD_NOT_ALLOWED, error)
        }
        Ok(answer) => (StatusCode::OK, serde_json::json!(answer)),
        Err(error) => {
            let error = serde_json::json!({"error": format!("unknown who leads: {error}")});
            (StatusCode::SERVICE_UNAVAILABLE, error)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        hyper::http::HeaderValue::from_static("application/json"),
    );
    headers.insert(
        CACHE_CONTROL,
        hyper::http::HeaderValue::from_static("no-store"),
    );
    response
}
