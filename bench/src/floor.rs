//! The floor: the least that a correct lock on one Redis 7 must do, written by hand.
//!
//! `SET NX PX` and a script that compares and deletes, through the client crate that most programs use,
//! in the same version and with the same settings: one connection shared by all tasks, a pipeline
//! buffer of 2048, no response time-out of the driver's, `TCP_NODELAY` on. No fence, no renewal, no
//! waiting, no clean-up. With Nagle's algorithm on it is shown as well, because that alone can
//! double what many tasks do on one connection, and the peers leave it on. Over a cluster it is the
//! same through the crate's cluster client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};

use crate::contender::{Contender, TTL};

/// Deletes the key if it is still ours.
pub const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Enough for a thousand concurrent callers to share one write; the same as Tenure's.
const PIPELINE_BUFFER: usize = 2_048;

/// Whether small packets wait for the answer to the last one, so that more fits into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nagle {
    /// As the client crate has it by default.
    On,
    /// `TCP_NODELAY`, as Tenure sets it.
    Off,
}

/// One shared connection, or one for each node of a cluster.
#[derive(Clone)]
pub struct Floor<C = MultiplexedConnection> {
    connection: C,
    release: Arc<str>,
    leases: Arc<AtomicU64>,
}

/// The name and the value that makes it ours.
pub struct Token {
    name: String,
    value: String,
}

impl Floor {
    pub async fn connect(url: &str, nagle: Nagle) -> Self {
        Self::over(connect(url, nagle).await).await
    }

    /// A round trip that does nothing.
    pub async fn ping(&self) {
        let mut connection = self.connection.clone();
        let pong: String = redis::cmd("PING")
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        assert_eq!(pong, "PONG");
    }
}

impl Floor<ClusterConnection> {
    pub async fn connect_to_cluster(nodes: Vec<String>) -> Self {
        let client = ClusterClient::new(nodes).expect("redis urls");
        let connection = client.get_async_connection().await;
        Self::over(connection.expect("the cluster can be reached")).await
    }
}

impl<C: ConnectionLike> Floor<C> {
    async fn over(mut connection: C) -> Self {
        let release: String = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(COMPARE_AND_DELETE)
            .query_async(&mut connection)
            .await
            .expect("the server takes scripts");
        Self {
            connection,
            release: release.into(),
            leases: Arc::default(),
        }
    }
}

/// A connection as `crates/tenure/src/store/redis/reconnect.rs` makes it.
pub async fn connect(url: &str, nagle: Nagle) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a redis url");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(nagle == Nagle::Off));
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER);
    Client::open(info)
        .expect("a redis url")
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("the server can be reached")
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Contender for Floor<C> {
    type Held = Token;

    async fn acquire(&self, name: &str) -> Token {
        let lease = self.leases.fetch_add(1, Ordering::Relaxed);
        // As long as the id of a Tenure lease.
        let value = format!("floor:0123456789abcdef0123456789abcdef:{lease}:30000");
        let mut connection = self.connection.clone();
        let taken: bool = redis::cmd("SET")
            .arg(name)
            .arg(&value)
            .arg("NX")
            .arg("PX")
            .arg(TTL.as_secs() * 1_000)
            .query_async(&mut connection)
            .await
            .expect("the floor could not acquire");
        assert!(taken, "the floor cannot wait");
        let name = name.to_owned();
        Token { name, value }
    }

    async fn release(&self, token: Token) {
        let mut connection = self.connection.clone();
        let deleted: bool = redis::cmd("EVALSHA")
            .arg(&*self.release)
            .arg(1)
            .arg(&token.name)
            .arg(&token.value)
            .query_async(&mut connection)
            .await
            .expect("the floor could not release");
        assert!(deleted, "the floor lost a lease");
    }
}
