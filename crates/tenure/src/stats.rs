//! Counters of a client, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::timings::Timings;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident by $count:ident;)*) => {
/// Counters of one client since it connected, as returned by
        /// [`Locks::stats`](crate::Locks::stats).
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
    /// Attempts that found the lock held by another holder.
    busy by found_busy;
    /// Renewals that succeeded.
    renewed by renewed;
    /// Renewals that failed or got no reply; each was retried while there was time.
    renewals_failed by renewal_failed;
    /// Leases lost while a guard held them.
    lost by lost;
    /// Releases that ended a lease.
    released by released;
    /// Locks handed off from one holder to the next within this process, without a request to the
    /// store. They count as acquired, too.
    handed_off by handed_off;
    /// Releases after which this process [kept](crate::Lock::keep) the lease.
    kept by kept;
    /// Locks acquired from a kept lease, without a request to the store. They count as acquired,
    /// too.
    reused by reused;
    /// Kept leases that were released because another client asked for the lock.
    let_go by let_go;
    /// Kept leases that were found to be gone before anybody used them again.
    kept_lost by kept_lost;
    /// Acquisitions whose reply was lost, and whose outcome was then resolved.
    unknown_outcomes by outcome_unknown;
    /// Acquisitions that were cancelled or timed out, and then undone.
    cancelled by cancelled;
    /// Waiters woken because the lock was offered to them.
    woken_by_message by woken_by_message;
    /// Waiters that polled because their timer fired.
    woken_by_timer by woken_by_timer;
    /// Waiters that polled, several times a second, because the server refuses the channel that
    /// would wake them.
    woken_by_poll by woken_by_poll;
    /// Times that waiters had to do without messages, because the server refused the channel.
    messages_refused by messages_refused;
    /// Times that a lease could not be watched, because the server refused client tracking: its
    /// loss is noticed only at the next renewal.
    tracking_refused by tracking_refused;
    /// Connections made, including the first ones.
    connections by connected;
    /// Times that the client wrote its record.
    records_written by record_written;
    /// Warnings that the server evicts keys.
    eviction_warnings by eviction_warned;
}
