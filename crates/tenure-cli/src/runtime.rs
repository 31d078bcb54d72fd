//! The runtime that commands wait on.

use anyhow::{Context, Result};

/// Runs a command's future to completion, on this thread.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.context("cannot start the runtime: out of threads or file descriptors?")?;
    runtime.block_on(work)
}
