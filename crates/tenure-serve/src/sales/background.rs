//! Background work of sales: polls all items, and writes orders to the ledger.

use std::time::Duration;

use tenure_sale::{ConsumerOptions, Sale};

use crate::state::AppState;

/// Polling interval of all items, with and without watchers.
const LOOK_OFTEN: Duration = Duration::from_millis(250);
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How long the consumer may take to finish once the service stops.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Starts the background work. It ends soon after the service is stopped.
pub(crate) fn start(app: &AppState) -> impl Future<Output = ()> + use<> {
    let consuming = app.sale.clone().and_then(|sale| {
        let watched = sale.clone();
        app.in_background("items", move |app| watch(app, watched.clone()));
        let options = app.settings.consumer.clone()?;
        // A gate in memory writes orders to the ledger itself.
        let is_ours = !sale.gate().is_memory();
        let consume = move |app| consume(app, sale.clone(), options.clone());
        is_ours.then(|| app.in_background("orders", consume))
    });
    async move {
        if let Some(consuming) = consuming {
            // If it panicked, there is nothing left to stop.
            let _ = consuming.await;
        }
    }
}

/// Polls all items repeatedly.
async fn watch(app: AppState, sale: Sale) {
    loop {
        app.shop.look(&sale).await;
        let is_watched = app.shop.feed.readers() > 0;
        let pause = if is_watched { LOOK_OFTEN } else { LOOK_SELDOM };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.shop.request_refresh.notified() => {}
            () = app.stop.cancelled() => return,
        }
    }
}

/// Writes orders from the queues to the ledger.
async fn consume(app: AppState, sale: Sale, options: ConsumerOptions) {
    match sale.consume(options.stop_within(STOP_WITHIN)) {
        Ok(consumer) => {
            app.stop.cancelled().await;
            consumer.stop().await;
        }
        Err(error) => {
            let line = format_args!("tenure: cannot consume orders: {error}");
            app.settings.log.line(line);
        }
    }
}
