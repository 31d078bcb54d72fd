//! What a client counts: for metrics, for tests, for the curious.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::timings::Timings;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident by $count:ident;)*) => {
        /// Counters of one client since it was connected, as [`Locks::stats`](crate::Locks::stats)
        /// reads them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct StatsSnapshot {
            $($(#[$doc])* pub $field: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Stats {
            pub(crate) timings: Timings,
            $($field: AtomicU64,)*
        }

        impl Stats {
            $(pub(crate) fn $count(&self) {
                self.$field.fetch_add(1, Ordering::Relaxed);
            })*

            pub(crate) fn snapshot(&self) -> StatsSnapshot {
                StatsSnapshot {
                    $($field: self.$field.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

stats! {
    /// Locks granted.
    acquired by acquired;
    /// Attempts that another holder answered.
    busy by found_busy;
    /// Renewals that succeeded.
    renewed by renewed;
    /// Renewals that got no useful answer; each was tried again while there was time.
    renewals_failed by renewal_failed;
    /// Leases lost while a guard still held them.
    lost by lost;
    /// Releases that ended a lease.
    released by released;
    /// Locks that passed from one holder to the next inside this process without a word to the
    /// store. They count as acquired, too.
    handed_off by handed_off;
    /// Acquisitions whose reply was lost, and which were resolved.
    unknown_outcomes by outcome_unknown;
    /// Acquisitions that the caller gave up, or whose time was over, and which were undone.
    cancelled by cancelled;
    /// Waiters woken because the lock was offered to them.
    woken_by_message by woken_by_message;
    /// Waiters that looked again because time had passed.
    woken_by_timer by woken_by_timer;
    /// Waiters that looked again, as they do several times a second, because the server refuses the
    /// channel that would wake them.
    woken_by_poll by woken_by_poll;
    /// Times that waiting had to do without messages, because the server refused the channel.
    messages_refused by messages_refused;
    /// Times that a lease could not be watched, because the server refused client tracking: its
    /// loss is noticed at the next renewal only.
    tracking_refused by tracking_refused;
    /// Connections made, the first ones included.
    connections by connected;
    /// Times that the client wrote what it holds into its record.
    records_written by record_written;
    /// Warnings that the server evicts keys.
    eviction_warnings by eviction_warned;
}
