//! The reference: a handler that reads the same JSON and answers at once.

use std::net::SocketAddr;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{delete, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tenure_testkit::ClientProcess;

use super::Asked;
use crate::child;
use crate::setting::two_workers;

/// The handler as a process of its own.
pub struct Handler {
    pub addr: SocketAddr,
    process: ClientProcess,
}

#[derive(Deserialize)]
struct Order {
    item: String,
    buyer: String,
    #[serde(default)]
    units: u64,
    request: Option<String>,
}

#[derive(Serialize)]
struct Taken {
    order_id: &'static str,
    state: &'static str,
    replayed: bool,
    item: String,
    buyer: String,
    request: Option<String>,
    units: u64,
    left: u64,
    poll_after_ms: u64,
}

#[derive(Deserialize)]
struct Wish {
    ttl_ms: u64,
}

#[derive(Serialize)]
struct Lease {
    name: String,
    lease_id: &'static str,
    fence: u64,
    ttl_ms: u64,
    expires_at: &'static str,
    waited_ms: u64,
}

impl Handler {
    pub fn start() -> Self {
        let process = child::spawn("http", &[]);
        let addr = process.expect_line(child::PATIENCE);
        let addr = addr.parse().expect("it says where it listens");
        Self { addr, process }
    }

    pub fn asked(&self) -> Asked {
        Asked {
            addr: self.addr,
            pid: self.process.pid(),
        }
    }
}

/// The process: says where it listens, and answers until it is killed.
pub fn child() {
    two_workers().block_on(async {
        let router = Router::new()
            .route("/api/v1/orders", post(order))
            .route("/api/v1/locks/{name}", post(lock))
            .route("/api/v1/locks/{name}/lease", delete(unlock));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let addr = listener.local_addr().expect("it has one");
        child::tell(&addr.to_string());
        let listener = axum::serve::ListenerExt::tap_io(listener, |socket| {
            socket.set_nodelay(true).expect("a socket");
        });
        axum::serve(listener, router).await.expect("it serves");
    });
}

async fn order(Json(order): Json<Order>) -> (StatusCode, Json<Taken>) {
    let Order {
        item,
        buyer,
        units,
        request,
    } = order;
    let taken = Taken {
        order_id: "sku-7.1.42",
        state: "queued",
        replayed: false,
        item,
        buyer,
        request,
        units,
        left: 41,
        poll_after_ms: 100,
    };
    (StatusCode::ACCEPTED, Json(taken))
}

async fn lock(Path(name): Path<String>, Json(wish): Json<Wish>) -> (StatusCode, Json<Lease>) {
    let lease = Lease {
        name,
        lease_id: "0b9f1c527a1e4c559d30000000000000.1",
        fence: 1_700_000_000_000_000,
        ttl_ms: wish.ttl_ms,
        expires_at: "2026-11-27T20:00:00.000Z",
        waited_ms: 0,
    };
    (StatusCode::CREATED, Json(lease))
}

async fn unlock() -> StatusCode {
    StatusCode::NO_CONTENT
}
