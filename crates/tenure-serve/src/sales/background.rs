//! Background work of sales: polls all items, and writes orders to the ledger.

use std::time::Duration;

use tenure_sale::Sale;

use crate::state::AppState;

/// Polling interval of all items, with and without watchers.
const LOOK_OFTEN: Duration = Duration::from_millis(250);
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How long the consumer may take to finish once the service stops.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Starts the background work. It ends soon after the service is stopped.
pub(crate) fn start(app: &AppState) -> impl Future<Output = ()> + use<> {
    let sale = app.sale.clone();
    let consuming = sale.map(|sale| {
        tokio::spawn(watch(app.clone(), sale.clone()));
        tokio::spawn(consume(app.clone(), sale))
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

/// Writes orders from the queues to the ledger. A gate in memory does that itself.
async fn consume(app: AppState, sale: Sale) {
    let Some(options) = app.settings.consumer.clone() else {
        return;
    };
    if sale.gate().is_memory() {
        return;
    }
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
