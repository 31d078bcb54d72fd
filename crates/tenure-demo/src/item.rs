//! The demo item, for trying out the service.

use tenure_sale::{ErrorKind, ItemState, NewItem, Result, Sale};

/// The default item.
pub const ITEM: &str = "1001";
/// The units of the demo item.
pub const UNITS: u64 = 5_000;

/// Creates the demo item and opens its sale, if it does not exist.
pub async fn stock_demo(sale: &Sale) -> Result<()> {
    match sale.create(&NewItem::new(ITEM, UNITS)?).await {
        Err(error) if error.kind() != ErrorKind::ItemExists => return Err(error),
        _ => {}
    }
    let item = sale.item(ITEM).await?;
    // Another instance may have created it without opening it.
    if item.is_some_and(|item| item.state == ItemState::Draft) {
        sale.open_item(ITEM).await?;
    }
    Ok(())
}
