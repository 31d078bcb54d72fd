//! What all measures share: the server, the number of rounds, the runtimes.

use tenure_testkit::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// What `#[tokio::main]` gives on two cores, written down so that it is the same on every machine.
pub const WORKERS: usize = 2;

/// One run of the benchmarks.
pub struct Setting {
    pub server: RedisServer,
    pub rounds: usize,
}

impl Setting {
    pub fn url(&self) -> String {
        self.server.url()
    }
}

/// The runtime that floor, ours and peers run on alike.
pub fn two_workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).enable_all().build();
    runtime.expect("threads can be started")
}

/// Everything of the caller's on one thread.
pub fn one_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made")
}
