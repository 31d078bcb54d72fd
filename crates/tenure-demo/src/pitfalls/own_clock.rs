//! An old recipe: a lock whose value is its expiry by its holder's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::plain_store::PlainStore;

/// Tries to take the lock. It succeeds if the lock is free, or has expired by the caller's clock,
/// which shows `now_ms`.
pub(crate) async fn try_lock(
    store: &PlainStore,
    key: &str,
    now_ms: u128,
    lease: Duration,
) -> Result<bool> {
    let end = (now_ms + lease.as_millis()).to_string();
    if store.set_nx(key, &end).await? {
        return Ok(true);
    }
    let found = store.get(key).await?;
    let found_end = found.as_deref().and_then(|end| end.parse::<u128>().ok());
    if found_end.is_some_and(|end| end >= now_ms) {
        return Ok(false);
    }
    // The client that reads the old value again was first. The others have overwritten its expiry.
    let before = store.get_set(key, &end).await?;
    Ok(before == found)
}

/// The wall clock time.
pub(crate) fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}
