//! The test kit of Tenure: starts and breaks real Redis servers, connections, clocks and client
//! processes, records what clients did meanwhile, and checks it.
//!
//! The kit works with processes and sockets. It uses neither `tenure` nor the Redis client that
//! `tenure` is built on, so it cannot share their mistakes.
//!
//! ```
//! use tenure_testkit::{Fsync, Proxy, RedisServer, RespClient};
//!
//! // A private server, and a proxy for its clients.
//! let server = RedisServer::builder().aof(Fsync::Always).start();
//! let proxy = Proxy::start(server.addr());
//! let mut client = RespClient::connect(proxy.addr());
//!
//! // The server executes the command, but its reply is lost.
//! proxy.reset_after_request();
//! assert!(client.try_command(&["SET", "key", "value"]).is_err());
//! assert_eq!(server.client().command(&["GET", "key"]).text(), "value");
//!
//! // The server is killed and restarts with its data.
//! server.kill();
//! server.restart();
//! assert_eq!(server.client().command(&["GET", "key"]).text(), "value");
//! ```
//!
//! # Contents
//!
//! Servers, connections and processes to break:
//!
//! - [`RedisServer`]: a `redis-server` on a free port, plain, with TLS, on a Unix socket, as a
//!   replica; paused, killed, restarted with or without its data, out of memory, busy.
//! - [`PostgresServer`]: a private PostgreSQL server; paused, killed, restarted.
//! - [`Pair`]: a server and a lagging copy that swap roles as often as needed.
//! - [`Sentinels`]: a master, its replicas and three sentinels; masters killed and replaced,
//!   replication cut or delayed, the lagging replica promoted, sentinels killed.
//! - [`Cluster`]: masters that share the slots, and their replicas; slots moved key by key or left
//!   uncovered, replicas promoted in every way.
//! - [`RedlockNodes`]: independent servers, each with an optional proxy and clock.
//! - [`Proxy`]: between client and server; holds, drops, delays, dribbles, cuts, resets, refuses,
//!   and moves open connections to another server.
//! - [`ClockShim`]: the wall clock of a process, set forward or back or made to run fast or slow.
//! - [`ClientProcess`]: a client program that is paused and killed.
//!
//! A [`test`](macro@test) that failed while the machine stalled is repeated.
//!
//! Servers keep their files in memory where there is room, so that no test waits for a busy disk;
//! [`keep_servers_on_disk`] is for runs that shall.
//!
//! To inspect them: [`RespClient`], a small blocking client, and [`eventually`]. As another library:
//! [`Redisson`], which uses locks like a Java process with Redisson.
//!
//! To check a run with many clients and faults: each client process records its [`history`] with a
//! [`Recorder`], the test records its faults with a [`Nemesis`], and [`check`] finds the violations.
//! [`FencedRegister`] is a resource that gets damaged if fences do not work. A [`sale`] has its own
//! recorder and ten invariants instead. [`Seed`] makes such a run replayable:
//!
//! ```
//! use std::time::Duration;
//! use tenure_testkit::history::{Outcome, until_ns};
//! use tenure_testkit::{History, Recorder, check};
//!
//! let dir = tempfile::tempdir()?;
//! let (client, task) = (1, 1);
//! let recorder = Recorder::create(dir.path(), client);
//!
//! let call = recorder.acquire(task, "orders");
//! // .. acquire the lock here; on failure `call.end(Outcome::Busy)` and so on, then:
//! let believed_until = until_ns(|| Duration::from_secs(30)); // `|| guard.remaining()`
//! let hold = call.granted(Some(42), believed_until);
//!
//! let believed_until = until_ns(|| Duration::from_secs(20));
//! let call = recorder.release(task, "orders", hold, believed_until);
//! // .. release it here.
//! call.end(Outcome::Released);
//!
//! let history = History::load(dir.path());
//! check::assert_none(&check::exclusion(&history));
//! check::assert_none(&check::fences(&history));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Conventions
//!
//! Everything is blocking and uses threads; an async test may call it, because all calls except waits
//! are quick. Failures panic with the end of the server's log or the process's standard error. Servers
//! and processes are killed when they are dropped or the test process ends, however it ends.
#![expect(
    clippy::expect_used,
    reason = "a kit that fails must fail the test with a clear message"
)]

pub mod check;
mod clock_shim;
mod cluster;
pub mod history;
mod mutex;
mod pair;
mod port;
mod postgres;
mod process;
mod proxy;
mod redisson;
mod redlock_nodes;
mod resource;
mod resp;
pub mod sale;
mod seed;
mod sentinels;
mod server;
mod server_dir;
mod spawn;
mod stall;
mod tls;
mod wait;

pub use clock_shim::ClockShim;
pub use cluster::{Cluster, ClusterBuilder, FailoverKind, Migration};
pub use history::{History, Nemesis, Recorder};
pub use pair::Pair;
pub use postgres::{PgBouncer, PostgresServer};
pub use process::ClientProcess;
pub use proxy::{Counts, Proxy};
pub use redisson::Redisson;
pub use redlock_nodes::{RedlockNodes, RedlockNodesBuilder};
pub use resource::{Access, AccessKind, FencedRegister, Stale};
pub use resp::{Message, Reply, RespClient};
pub use seed::Seed;
pub use sentinels::{Sentinels, SentinelsBuilder};
pub use server::{BusyScript, ClientKind, Fsync, RedisServer, ServerBuilder};
pub use server_dir::keep_servers_on_disk;
pub use stall::despite_stalls;
pub use tenure_testkit_macros::test;
pub use tls::TlsFiles;
pub use wait::eventually;
