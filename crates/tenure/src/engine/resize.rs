//! Changes the limit of a semaphore.

use super::retry::Retry;
use crate::core::Core;
use crate::error::Result;
use crate::name::LockName;

/// Repeats the request until there is a reply or no time left. A repetition changes nothing more.
pub(crate) async fn resize(core: &Core, name: &LockName, limit: u32) -> Result<()> {
    let mut retry = Retry::new(core);
    loop {
        match core.store.resize(name, limit, retry.limit).await {
            Ok(()) => return Ok(()),
            Err(failure) => retry.after(failure).await?,
        }
    }
}
