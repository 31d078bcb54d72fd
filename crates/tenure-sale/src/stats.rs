//! Counters of a sale.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::order::{Answer, Outcome};

macro_rules! counters {
    ($($(#[doc = $what:literal])+ $name:ident,)*) => {
        /// The counters of one [`Sale`](crate::Sale) in this process since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct SaleStats {
            $($(#[doc = $what])+ pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> SaleStats {
                SaleStats {
                    $($name: self.$name.get(),)*
                }
            }
        }
    };
}

counters! {
    /// Requests answered: accepted.
    accepted,
    /// Requests answered: replayed.
    replayed,
    /// Requests answered: conflict.
    conflicts,
    /// Requests answered: sold out.
    sold_out,
    /// Requests answered: limit reached.
    limit_reached,
    /// Requests answered: not started, ended or paused.
    not_on_sale,
    /// Requests answered: no item.
    no_item,
    /// Requests answered: busy.
    busy,
    /// Requests answered: stale epoch.
    stale_epoch,
    /// Requests that failed.
    failed,
    /// Batches committed by consumers of this process.
    batches,
    /// Batches that the ledger did not accept, counting each try.
    batches_failed,
    /// Entries committed to the ledger.
    committed,
    /// Entries that were already in the ledger.
    redelivered,
    /// Entries claimed from consumers that did not acknowledge them.
    claimed,
    /// Entries of an older epoch, which the ledger refused.
    stale_entries,
    /// Orders that the ledger rejected because there were not enough units. Always zero unless a
    /// server lost acknowledged data.
    rejected,
    /// Entries moved to the dead letters.
    buried,
    /// Orders that expired.
    expired,
    /// Changes sent to the gate.
    relayed,
    /// Rebuilds of a gate.
    rebuilds,
    /// Rebuilds that failed, or were overtaken.
    rebuilds_failed,
    /// Lost orders found by this process.
    lost,
    /// How often an item could not be cared for: its gate or its books are broken or unavailable.
    care_failed,
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn answered(&self, answer: &Answer) {
        let counter = match &answer.outcome {
            Outcome::Accepted(_) => &self.accepted,
            Outcome::Replayed(_) => &self.replayed,
            Outcome::Conflict(_) => &self.conflicts,
            Outcome::SoldOut => &self.sold_out,
            Outcome::LimitReached => &self.limit_reached,
            Outcome::NotStarted | Outcome::Ended | Outcome::Paused => &self.not_on_sale,
            Outcome::NoItem => &self.no_item,
            Outcome::Busy => &self.busy,
            Outcome::StaleEpoch => &self.stale_epoch,
        };
        counter.one();
    }
}
