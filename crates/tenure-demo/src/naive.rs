//! What everybody writes first: read the stock, think, write back one less.

use std::time::Duration;

use anyhow::Result;

use crate::plain_store::PlainStore;

/// Sells one unit of a stock that was read as `left`, after `thinking`: what it leaves, or `None` if
/// nothing was left. Two buyers who read the same number sell the same unit.
pub(crate) async fn sell_one(
    store: &PlainStore,
    stock: &str,
    left: i64,
    thinking: Duration,
) -> Result<Option<i64>> {
    if left <= 0 {
        return Ok(None);
    }
    tokio::time::sleep(thinking).await;
    let left = left - 1;
    store.set(stock, &left.to_string()).await?;
    Ok(Some(left))
}
