//! What a sale counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::order::{Answer, Outcome};

macro_rules! counters {
    ($($(#[doc = $what:literal])+ $name:ident,)*) => {
        /// What one [`Sale`](crate::Sale) of this process has counted since it was opened.
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
    /// Batches that the ledger did not take, each try counted.
    batches_failed,
    /// Entries that came into the ledger.
    committed,
    /// Entries that were in the ledger before.
    redelivered,
    /// Entries taken over from consumers that did not acknowledge them.
    claimed,
    /// Entries of an older epoch, which the ledger refused.
    stale_entries,
    /// Orders that the ledger rejected because there were not enough units. Always zero unless
    /// a server lost what it had acknowledged.
    rejected,
    /// Entries buried as dead.
    buried,
    /// Orders that expired.
    expired,
    /// Changes told to the gate.
    relayed,
    /// Rebuilds of a gate.
    rebuilds,
    /// Rebuilds that failed, or were overtaken.
    rebuilds_failed,
    /// Orders found lost by this process.
    lost,
}

/// One number that only grows.
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
