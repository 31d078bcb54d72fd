//! The runtime that commands wait on.

use anyhow::{Context, Result};

/// Runs a command's work to its end, on this thread.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("cannot start: are threads or file descriptors used up?")?;
    runtime.block_on(work)
}
