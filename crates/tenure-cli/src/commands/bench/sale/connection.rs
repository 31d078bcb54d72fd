//! One connection that is kept for many orders.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::Request;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of a response or a connection attempt.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// One connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<String>,
}

impl Connection {
    pub async fn open(addr: SocketAddr) -> Result<Self> {
        let opening = async {
            let socket = TcpStream::connect(addr).await?;
            socket.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(socket)).await?;
            tokio::spawn(connection);
            anyhow::Ok(Self { sender })
        };
        timeout(ANSWER_WITHIN, opening).await?
    }

    /// Whether it can carry another order.
    pub async fn is_open(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request; returns its status and body. After an error its result is unknown.
    pub async fn send(&mut self, request: Request<String>) -> Result<(u16, Bytes)> {
        let sending = async {
            let response = self.sender.send_request(request).await?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((status, body))
        };
        timeout(ANSWER_WITHIN, sending).await?
    }
}
