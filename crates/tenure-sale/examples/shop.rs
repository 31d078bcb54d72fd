//! A flash sale in one process, with nothing installed.
//!
//! ```console
//! $ cargo run -p tenure-sale --example shop
//! ```
//!
//! A thousand buyers rush for a hundred units; some pay, some change their minds. Give URLs to run the
//! same on servers: `… --example shop -- redis://127.0.0.1 postgres://me@127.0.0.1/shop`.

#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::time::Duration;

use tenure_sale::{
    ConsumerOptions, Error, ItemState, Mode, NewItem, Outcome, Request, Sale, Terms,
};

const ITEM: &str = "sku-7";
const UNITS: u64 = 100;
const BUYERS: u32 = 1000;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut urls = std::env::args().skip(1);
    let gate = urls.next().unwrap_or_else(|| "memory://".into());
    let ledger = urls.next().unwrap_or_else(|| "sqlite::memory:".into());
    let sale = Sale::open(gate, ledger).await?;
    // In a real shop other processes do this; a gate in memory does it by itself.
    let consumer = sale.consume(ConsumerOptions::default())?;

    put_on_sale(&sale).await?;
    let rush: Vec<_> = (0..BUYERS)
        .map(|buyer| tokio::spawn(visit(sale.clone(), buyer)))
        .collect();
    for buyer in rush {
        buyer.await.expect("a buyer panicked")?;
    }
    sale.close(ITEM).await?;
    consumer.stop().await;

    println!("{}", sale.reconcile(ITEM, Mode::DryRun).await?);
    println!("{:#?}", sale.stats());
    Ok(())
}

async fn put_on_sale(sale: &Sale) -> Result<(), Error> {
    if sale.item(ITEM).await?.is_none() {
        let terms = Terms {
            limit_per_buyer: Some(1),
            pay_within: Some(Duration::from_mins(15)),
            ..Terms::default()
        };
        sale.create(&NewItem::new(ITEM, UNITS)?.terms(terms))
            .await?;
    }
    let item = sale.open_item(ITEM).await?;
    assert_eq!(item.state, ItemState::Open);
    Ok(())
}

async fn visit(sale: Sale, buyer: u32) -> Result<(), Error> {
    let request = Request::new(ITEM, format!("buyer-{buyer}"), "the only click")?;
    let Outcome::Accepted(order) = sale.submit(&request).await?.outcome else {
        return Ok(());
    };
    sale.wait(&order, Duration::from_secs(10)).await?;
    if buyer.is_multiple_of(10) {
        sale.cancel(&order).await?;
    } else {
        sale.pay(&order).await?;
    }
    Ok(())
}
