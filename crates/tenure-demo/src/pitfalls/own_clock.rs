//! A lock whose value is its end, by the clock of whoever takes it. An old recipe.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::plain_store::PlainStore;

/// Takes the lock if it is free, or if its end has passed by the caller's clock, which says
/// `now_ms`: whether it was.
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
    // Whoever finds the same old end again was the first. The others have overwritten its end.
    let before = store.get_set(key, &end).await?;
    Ok(before == found)
}

/// What the clock on the wall says.
pub(crate) fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}
