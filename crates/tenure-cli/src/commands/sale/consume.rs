//! `tenure sale consume`: writes orders from the queues to the ledger.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tenure_sale::ConsumerOptions;
use tenure_view::output;
use tenure_view::time;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::place::PlaceArgs;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure sale consume
  tenure sale consume --batch 1000 --json

As a service:
  [Service]
  Environment=TENURE_URL=redis://127.0.0.1 TENURE_LEDGER=postgres://shop@db/shop
  ExecStart=/usr/bin/tenure sale consume
  Restart=always
  RestartPreventExitStatus=64 78";

/// Write accepted orders from the queues to the ledger, until Ctrl-C or SIGTERM
///
/// Without a consumer no order is confirmed. It consumes the queues of all items, expires unpaid
/// orders, updates gates and rebuilds those whose server was replaced. Run any number on any
/// machines: if one dies, another takes over its orders. While gate or ledger are unavailable it
/// waits.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ConsumeArgs {
    /// Maximum orders per transaction, 1 to 5000
    #[arg(long, value_name = "ORDERS", default_value_t = 200)]
    batch: usize,

    /// Take over orders of a consumer that was not heard of for this long
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = time::parse)]
    dead_after: Duration,

    /// Take over orders of another consumer after this idle time, even if it is alive
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time::parse)]
    idle: Duration,

    /// Deliveries before an order that the ledger rejects becomes a dead letter
    #[arg(long, value_name = "TIMES", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    deliveries: u64,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Serialize)]
struct Consumed {
    batches: u64,
    batches_failed: u64,
    committed: u64,
}

pub fn run(args: &ConsumeArgs) -> Result<Exit> {
    let options = ConsumerOptions::default()
        .batch(args.batch)
        .idle(args.idle)
        .dead_after(args.dead_after)
        .deliveries_max(args.deliveries);
    args.place.with_sale(async |sale| {
        let mut signals = Signals::new()?;
        let consumer = sale.consume(options)?;
        output::complain(format_args!(
            "tenure: consuming as `{}`; Ctrl-C stops it",
            consumer.name()
        ));
        signals.next().await;
        output::complain("tenure: finishing the current batch");
        tokio::select! {
            () = consumer.stop() => {}
            number = signals.next() => return Ok(Exit::Signal(number)),
        }
        let stats = sale.stats();
        if args.place.json {
            output::say_json(&Consumed {
                batches: stats.batches,
                batches_failed: stats.batches_failed,
                committed: stats.committed,
            })?;
        } else {
            let (committed, batches) = (stats.committed, stats.batches);
            output::say(format_args!("{committed} orders in {batches} batches"))?;
        }
        Ok(Exit::Done)
    })
}

/// The signals that stop the consumer.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let hear = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    /// The number of the signal that arrived.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}
