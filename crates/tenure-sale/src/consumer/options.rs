//! The options of a consumer.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// The maximum number of entries in one ledger transaction.
const BATCH_MAX: usize = 5_000;

/// Shorter than this, a consumer would be busy with saying that it is alive.
const DEAD_AFTER_MIN: Duration = Duration::from_millis(100);

/// The options of a [`Consumer`](crate::Consumer).
///
/// ```
/// use std::time::Duration;
/// use tenure_sale::ConsumerOptions;
///
/// let options = ConsumerOptions::default().batch(500).idle(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are passed to a consumer"]
pub struct ConsumerOptions {
    pub(super) batch: usize,
    pub(super) idle: Duration,
    pub(super) dead_after: Duration,
    pub(super) deliveries_max: u64,
    pub(super) sweep_every: Duration,
    pub(super) look_every: Duration,
    pub(super) stop_within: Duration,
    pub(super) changes_kept: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            batch: 200,
            idle: Duration::from_secs(30),
            dead_after: Duration::from_millis(1_500),
            deliveries_max: super::settle::DELIVERIES_MAX,
            sweep_every: Duration::from_secs(1),
            look_every: Duration::from_millis(500),
            stop_within: Duration::from_secs(5),
            changes_kept: Duration::from_hours(24),
        }
    }
}

impl ConsumerOptions {
    /// The maximum number of entries in one transaction: 200 by default. A larger batch is faster,
    /// but more work is repeated when one of its entries fails.
    pub fn batch(mut self, entries: usize) -> Self {
        self.batch = entries;
        self
    }

    /// When entries that another consumer read but did not acknowledge are claimed although it is
    /// alive: after 30 s by default. It should be longer than any transaction takes; if it is shorter, work is done
    /// twice, which is harmless.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// When a consumer that is no longer heard of counts as dead, so that others take over what it has
    /// read: after 1.5 s by default. If it is shorter than a pause of the machine, work is done twice,
    /// which is harmless; if it is longer, orders that a killed process has read are confirmed later.
    pub fn dead_after(mut self, limit: Duration) -> Self {
        self.dead_after = limit;
        self
    }

    /// How often an entry that the ledger does not accept is tried before it is buried: 5 times by
    /// default. Time in which the ledger is unavailable does not count.
    pub fn deliveries_max(mut self, deliveries: u64) -> Self {
        self.deliveries_max = deliveries;
        self
    }

    /// How often to check for orders that were not paid for in time: every second by default.
    pub fn sweep_every(mut self, every: Duration) -> Self {
        self.sweep_every = every;
        self
    }

    /// How often to check for new items, gates that must be rebuilt and changes that were not sent:
    /// twice a second by default.
    pub fn look_every(mut self, every: Duration) -> Self {
        self.look_every = every;
        self
    }

    /// How long [`stop`](crate::Consumer::stop) tries to finish while the ledger is unavailable: 5
    /// s by default.
    pub fn stop_within(mut self, limit: Duration) -> Self {
        self.stop_within = limit;
        self
    }

    /// How long changes that the gate has applied are kept, for clients that resume
    /// [`Sale::events`](crate::Sale::events): a day by default.
    pub fn changes_kept(mut self, kept: Duration) -> Self {
        self.changes_kept = kept;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.batch == 0 || self.batch > BATCH_MAX {
            let message = format!(
                "cannot use `{}` as the batch of a consumer: it must be 1 to {BATCH_MAX}",
                self.batch
            );
            return Err(Error::new(ErrorKind::InvalidSetting, message));
        }
        if self.dead_after < DEAD_AFTER_MIN {
            let message = format!(
                "cannot use {:?} as the time after which a consumer counts as dead: it must be at \
                 least {DEAD_AFTER_MIN:?}",
                self.dead_after
            );
            return Err(Error::new(ErrorKind::InvalidSetting, message));
        }
        for (what, every) in [("sweep", self.sweep_every), ("look", self.look_every)] {
            if every.is_zero() {
                let message = format!(
                    "cannot use `0` as how often a consumer is to {what}: it must be longer than \
                     zero"
                );
                return Err(Error::new(ErrorKind::InvalidSetting, message));
            }
        }
        Ok(())
    }
}
