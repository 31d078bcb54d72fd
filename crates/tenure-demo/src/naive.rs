//! The usual first version: read the stock, wait, write back one less.

use std::time::Duration;

use anyhow::Result;

use crate::plain_store::PlainStore;

/// Sells one unit of a stock that was read as `left`, after `thinking`. Returns the units left, or `None`
/// if it was sold out. Two buyers that read the same number buy the same unit.
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
