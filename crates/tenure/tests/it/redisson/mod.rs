//! The layout of Redisson: its encoding, and a Java process next to ours.

use tenure::{Layout, Tenure};
use tenure_testkit::{RedisServer, Redisson};

/// A read-write lock beside ours.
mod beside;
/// What is in the server, byte by byte.
mod bytes;
/// A client in another language, written from `docs/wire-format.md` alone.
mod example;
/// Keys that are no such lock, and settings that contradict each other.
mod input;
/// A Java process that locks, waits, is woken and goes away.
mod java;
/// The scripts with arguments that the library would never send, and rights that are missing.
mod scripts;
/// Whose turn it is when both wait.
mod turns;

/// A server, a client of ours and a thread of a Java process.
async fn stage() -> (RedisServer, Tenure, Redisson) {
    let server = RedisServer::start();
    let (ours, java) = (ours(&server).await, java(&server));
    (server, ours, java)
}

/// A client that plays a process of its own.
async fn ours(server: &RedisServer) -> Tenure {
    let builder = Tenure::builder(server.url()).layout(Layout::Redisson);
    builder.connect().await.unwrap()
}

fn java(server: &RedisServer) -> Redisson {
    Redisson::connect(server.addr())
}
