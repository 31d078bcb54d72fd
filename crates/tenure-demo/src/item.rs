//! What there is to buy where the service is only tried.

use tenure_sale::{ErrorKind, ItemState, NewItem, Result, Sale};

/// What is ordered where nothing else is named.
pub const ITEM: &str = "1001";
/// How many there are of it.
pub const UNITS: u64 = 5_000;

/// Puts the item of the notes on sale, if there is none.
pub async fn stock_demo(sale: &Sale) -> Result<()> {
    match sale.create(&NewItem::new(ITEM, UNITS)?).await {
        Err(error) if error.kind() != ErrorKind::ItemExists => return Err(error),
        _ => {}
    }
    let item = sale.item(ITEM).await?;
    // Also if another instance made it and has not come to open it.
    if item.is_some_and(|item| item.state == ItemState::Draft) {
        sale.open_item(ITEM).await?;
    }
    Ok(())
}
