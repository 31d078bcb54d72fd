//! The state that all parts of one client share: store, clock, leases, waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::belief::Belief;
use crate::engine::detached::DetachedLeases;
use crate::engine::kept_leases::KeptLeases;
use crate::engine::local_queue::LocalQueues;
use crate::engine::observers::Observers;
use crate::engine::watchdog::Watchdog;
use crate::lease::ClientId;
use crate::moment::Clock;
use crate::name::LockName;
use crate::pending_work::Pending;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::store::Store;

/// How many times a lease may be used before it goes through the store again. Enough that its round
/// trips do not count; not so many that their fences would be far ahead of the server's clock if the
/// lease were deleted.
const KEPT_USES_MAX: u32 = 10_000;

pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) queues: LocalQueues,
    pub(crate) watchdog: Watchdog,
    pub(crate) detached: DetachedLeases,
    pub(crate) kept: KeptLeases,
    pub(crate) observers: Observers,
    pub(crate) pending: Pending,
    /// The content of the client's record has changed.
    pub(crate) record_changed: Notify,
    /// Whether the final record was written. Locked while a record is written, so that no other
    /// follows the final one.
    pub(crate) record_ended: tokio::sync::Mutex<bool>,
    closed: AtomicBool,
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        store: Arc<dyn Store>,
        stats: Arc<Stats>,
    ) -> Self {
        Self {
            id: ClientId::fresh(),
            settings,
            clock,
            store,
            stats,
            queues: LocalQueues::default(),
            watchdog: Watchdog::default(),
            detached: DetachedLeases::default(),
            kept: KeptLeases::default(),
            observers: Observers::default(),
            pending: Pending::default(),
            record_changed: Notify::new(),
            record_ended: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// A random number for a lease: who knows a lease id can release that lease, so knowing one
    /// lease must not help to guess another. Drawing a number twice is as unlikely as guessing it.
    pub(crate) fn next_lease_number() -> u64 {
        rand::random()
    }

    /// How many fences a lease may use: only one that is renewed is handed off.
    pub(crate) fn fences_for(&self, renewed: bool) -> u32 {
        let fences = if renewed {
            self.settings.hand_off.fences()
        } else {
            1
        };
        fences.min(self.store.fences_max())
    }

    /// How many fences a lease needs that may be kept for this long: one for each use.
    pub(crate) fn fences_to_keep(keep: Option<Duration>) -> u32 {
        // No more than the clock passes meanwhile: one in a microsecond.
        let micros = |keep: Duration| u32::try_from(keep.as_micros()).unwrap_or(u32::MAX);
        keep.map_or(1, |keep| micros(keep).clamp(1, KEPT_USES_MAX))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses everything that begins from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// From now on the lock may be idle. Only for the timings.
    pub(crate) fn release_started(&self, name: &LockName) {
        if self.stats.timings.is_wanted() {
            self.queues.release_started(name, self.clock.now());
        }
    }

    /// Starts to track a granted lease.
    pub(crate) fn track(&self, belief: &Arc<Belief>) {
        self.watchdog.track(belief);
        self.record_changed.notify_one();
    }

    /// A lease that no guard holds is gone. If it was kept, nobody must use it again.
    pub(crate) fn forget_lost(&self, belief: &Belief) {
        let held = &belief.held;
        if self.kept.take_lease(&held.name, &held.id).is_some() {
            self.stats.kept_lost();
            self.kept.forget(belief);
            self.untrack(belief);
        }
    }

    /// Stops tracking a lease, so that renewals stop before its release is sent.
    pub(crate) fn untrack(&self, belief: &Belief) {
        self.watchdog.untrack(belief.number);
        self.record_changed.notify_one();
    }
}
