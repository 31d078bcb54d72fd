//! The test kit of Tenure: starts and breaks real Redis servers, connections, clocks and client
//! processes, records what clients did meanwhile, and checks it.
//!
//! The kit knows processes and sockets. It knows neither `tenure` nor the Redis client that
//! `tenure` is built on, so it cannot bless their mistakes.
//!
//! ```
//! use tenure_testkit::{Fsync, Proxy, RedisServer, RespClient};
//!
//! // A server of one's own, with a proxy before it that the clients go through.
//! let server = RedisServer::builder().aof(Fsync::Always).start();
//! let proxy = Proxy::start(server.addr());
//! let mut client = RespClient::connect(proxy.addr());
//!
//! // The server executes the command, but its reply is lost.
//! proxy.reset_after_request();
//! assert!(client.try_command(&["SET", "key", "value"]).is_err());
//! assert_eq!(server.client().command(&["GET", "key"]).text(), "value");
//!
//! // The server is killed and comes back with what it had.
//! server.kill();
//! server.restart();
//! assert_eq!(server.client().command(&["GET", "key"]).text(), "value");
//! ```
//!
//! # What there is
//!
//! To break things:
//!
//! - [`RedisServer`]: a `redis-server` on a free port, plain, with TLS, on a Unix socket, as a
//!   replica; paused, killed, restarted with or without its data, out of memory, busy.
//! - [`PostgresServer`]: a PostgreSQL of one's own; paused, killed, restarted.
//! - [`Pair`]: a server and a copy that lags behind it; they change places as often as wanted.
//! - [`Sentinels`]: a master, its replicas and three sentinels; masters killed and replaced,
//!   replication cut or delayed, the lagging replica promoted, sentinels killed.
//! - [`Cluster`]: masters that share the slots, and their replicas; slots moved key by key or left
//!   uncovered, replicas promoted in every way.
//! - [`RedlockNodes`]: independent servers, each with a proxy and a clock of its own if wanted.
//! - [`Proxy`]: between client and server; holds, drops, delays, dribbles, cuts, resets, refuses,
//!   and puts another server under open connections.
//! - [`ClockShim`]: the wall clock of a process, set forward or back or made to run fast or slow.
//! - [`ClientProcess`]: a client program that is paused and killed.
//!
//! To look at them: [`RespClient`], a small blocking client of the kit's own, and [`eventually`].
//! To live beside them: [`Redisson`], which does to locks what a Java process would.
//!
//! To judge a run with many clients and faults: each client process writes its [`history`] with a
//! [`Recorder`], the test writes what it broke with a [`Nemesis`], and [`check`] finds what must
//! not have happened; [`FencedRegister`] is a resource to be damaged if fences do not work.
//! A [`sale`] has its own recorder, and ten invariants instead. [`Seed`] makes such a run replayable:
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
//! # Ways of the kit
//!
//! Everything is blocking and made of threads; an async test may call it, for all but the waiting
//! is quick. What cannot be done panics and shows the end of the server's log or the process's
//! standard error. Servers and processes die when they are dropped, and with the test process
//! however that ends.
#![expect(
    clippy::expect_used,
    reason = "a kit that cannot do its work must fail the test with a clear message"
)]

pub mod check;
mod clock_shim;
mod cluster;
pub mod history;
mod mutex;
mod pair;
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
mod spawn;
mod tls;
mod wait;

pub use clock_shim::ClockShim;
pub use cluster::{Cluster, ClusterBuilder, FailoverKind, Migration};
pub use history::{History, Nemesis, Recorder};
pub use pair::Pair;
pub use postgres::PostgresServer;
pub use process::ClientProcess;
pub use proxy::{Counts, Proxy};
pub use redisson::Redisson;
pub use redlock_nodes::{RedlockNodes, RedlockNodesBuilder};
pub use resource::{Access, AccessKind, FencedRegister, Stale};
pub use resp::{Message, Reply, RespClient};
pub use seed::Seed;
pub use sentinels::{Sentinels, SentinelsBuilder};
pub use server::{BusyScript, ClientKind, Fsync, RedisServer, ServerBuilder};
pub use tls::TlsFiles;
pub use wait::eventually;
