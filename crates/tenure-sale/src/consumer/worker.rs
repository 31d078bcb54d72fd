//! The worker: consumes the queue of one item, or of one of its shelves.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::backoff::Backoff;
use super::contradiction;
use super::options::ConsumerOptions;
use super::settle::settle;
use crate::core::Core;
use crate::entry::Entry;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::rebuild::put_back;
use crate::relay;

/// How long one read for new entries blocks. A clean stop waits for its end, because a reply in
/// flight would deliver entries to a consumer that is gone.
const PATIENCE: Duration = Duration::from_millis(300);
/// The minimum time between two checks for entries of dead consumers.
const CLAIM_EVERY_MIN: Duration = Duration::from_millis(50);

pub(super) struct Worker {
    pub(super) core: Arc<Core>,
    pub(super) item: String,
    /// Which of its queues.
    pub(super) shelf: u64,
    /// Of the consumer that it belongs to.
    pub(super) name: String,
    pub(super) options: ConsumerOptions,
    pub(super) stop: CancellationToken,
}

impl Worker {
    pub(super) async fn run(self) {
        let mut held: Vec<Entry> = Vec::new();
        let mut backoff = Backoff::new();
        let mut claims_at = Instant::now();
        let (mut gives_up_at, mut checked) = (None, false);
        loop {
            if self.stop.is_cancelled() {
                let now = Instant::now();
                let end = *gives_up_at.get_or_insert(now + self.options.stop_within);
                if held.is_empty() || now >= end {
                    break;
                }
            }
            match self.turn(&mut held, &mut claims_at, &mut checked).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    debug!(item = self.item, %error, "a consumer pauses: gate or ledger unavailable");
                    backoff.pause(&self.stop).await;
                }
            }
        }
        if !held.is_empty() {
            let (item, entries) = (&self.item, held.len());
            warn!(
                item,
                entries, "a consumer stops before the ledger accepted its entries"
            );
        }
    }

    /// Settles the entries it holds, or reads new ones. After an error it still holds the same
    /// entries: they are neither read nor counted as delivered again.
    async fn turn(
        &self,
        held: &mut Vec<Entry>,
        claims_at: &mut Instant,
        checked: &mut bool,
    ) -> Result<()> {
        if !*checked {
            // A ledger that was put back must not take entries before that is noticed.
            put_back::check(&self.core, &self.item).await?;
            *checked = true;
        }
        if held.is_empty() {
            *held = self.take(claims_at).await?;
            if held.is_empty() {
                return Ok(());
            }
            failpoint("consumer.after_read");
        }
        let (core, item) = (&self.core, &self.item);
        let settled = settle(core, item, held, self.options.deliveries_max).await?;
        held.clear();
        if settled.released {
            relay::relay_if_possible(core, item).await;
        }
        if settled.rejected {
            contradiction::resolve(core, item);
        }
        Ok(())
    }

    /// Entries of dead consumers first, now and then; otherwise new ones.
    async fn take(&self, claims_at: &mut Instant) -> Result<Vec<Entry>> {
        let (gate, batch) = (&self.core.gate, self.options.batch);
        if Instant::now() >= *claims_at {
            let idle = self.options.idle;
            let claimed = gate
                .claim_shelf(&self.item, self.shelf, &self.name, idle, batch)
                .await?;
            if claimed.len() < batch {
                *claims_at = Instant::now() + (idle / 2).max(CLAIM_EVERY_MIN);
            }
            if !claimed.is_empty() {
                self.core.counters.claimed.add(claimed.len());
                return Ok(claimed);
            }
        }
        gate.read_shelf(&self.item, self.shelf, &self.name, batch, PATIENCE)
            .await
    }
}
