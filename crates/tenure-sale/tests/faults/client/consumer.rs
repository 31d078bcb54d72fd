//! Commits orders from the gate to the ledger until it is stopped.

use std::time::Duration;

use tenure_sale::ConsumerOptions;
use tokio_util::sync::CancellationToken;

use super::{Order, open};

/// Short, so that what a dead consumer had is taken over again and again in a run.
pub const IDLE: Duration = Duration::from_millis(1_500);

pub async fn run(order: &Order, finish: &CancellationToken) {
    let Some(sale) = open(order, finish).await else {
        return;
    };
    let options = ConsumerOptions::default()
        .batch(50)
        .idle(IDLE)
        .sweep_every(Duration::from_millis(100))
        .look_every(Duration::from_millis(200));
    let consumer = sale.consume(options).unwrap();
    finish.cancelled().await;
    consumer.stop().await;
}
