//! The runtimes of the demonstrations.

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

/// Runs a future to completion on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    build(&mut Builder::new_current_thread())?.block_on(work)
}

/// A runtime with a thread for each core.
pub(crate) fn multi_thread() -> Result<Runtime> {
    build(&mut Builder::new_multi_thread())
}

fn build(builder: &mut Builder) -> Result<Runtime> {
    let runtime = builder.enable_all().build();
    runtime.context("cannot start the runtime: out of threads or file descriptors?")
}
