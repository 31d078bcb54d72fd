//! What the parts of one client share: its store, its clock, its leases, its waiters.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::belief::Belief;
use crate::engine::lines::Lines;
use crate::engine::pending::Pending;
use crate::engine::watchdog::{self, Watchdog};
use crate::engine::{Engine, cleaner, record};
use crate::error::{Error, Result};
use crate::guard::{LostReason, Released};
use crate::lease::{ClientId, Lease};
use crate::moment::{Clock, Moment};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::store::{Event, Held, Landing, OFFER, Store};

/// How long the engine goes on with releases after the last handle is gone.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// A client as its handles and guards share it. When the last of them is gone, the engine
/// finishes what is pending and ends.
pub(crate) struct Client {
    pub(crate) core: Arc<Core>,
    pub(crate) engine: Engine,
}

pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) lines: Lines,
    pub(crate) watchdog: Watchdog,
    pub(crate) pending: Pending,
    /// Something that the client's record tells has changed.
    pub(crate) record_changed: Notify,
    lease_numbers: AtomicU64,
    closed: AtomicBool,
}

impl Client {
    /// Sets the parts going. Must be called on the engine.
    pub(crate) fn start(
        engine: Engine,
        settings: Settings,
        clock: Clock,
        store: Arc<dyn Store>,
        stats: Arc<Stats>,
    ) -> Arc<Self> {
        let core = Arc::new(Core {
            id: ClientId::fresh(),
            settings,
            clock,
            store,
            stats,
            lines: Lines::default(),
            watchdog: Watchdog::default(),
            pending: Pending::default(),
            record_changed: Notify::new(),
            lease_numbers: AtomicU64::new(1),
            closed: AtomicBool::new(false),
        });
        let (events, happened) = mpsc::unbounded_channel();
        core.store.start(core.id, events);
        tokio::spawn(pass_on(Arc::clone(&core), happened));
        tokio::spawn(watchdog::run(Arc::clone(&core)));
        tokio::spawn(record::run(Arc::clone(&core)));
        let farewell = Arc::clone(&core);
        engine.on_stop(async move {
            let last_words = async {
                farewell.pending.wait().await;
                record::erase(&farewell).await;
            };
            let _ = tokio::time::timeout(FAREWELL_MAX, last_words).await;
        });
        Arc::new(Self { core, engine })
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.core.is_closed() {
            return Err(Error::closed());
        }
        Ok(())
    }

    /// Releases in the background. Never blocks, and needs no runtime.
    pub(crate) fn release_in_background(&self, belief: &Belief) {
        self.engine.spawn(self.core.releasing(belief, None));
    }

    /// Releases and says what happened, or that it is not known in time.
    pub(crate) async fn release(&self, belief: &Belief) -> Result<Released> {
        let (reply, answer) = oneshot::channel();
        let answer_by = self.core.clock.now() + self.core.settings.unreachable_after;
        let work = self.core.releasing(belief, Some((reply, answer_by)));
        self.engine.spawn(work);
        answer.await.unwrap_or(Ok(Released::Unknown))
    }
}

impl Core {
    pub(crate) fn next_lease_number(&self) -> u64 {
        self.lease_numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes a granted lease into care.
    pub(crate) fn admit(&self, belief: &Arc<Belief>) {
        self.watchdog.look_after(belief);
        self.record_changed.notify_one();
    }

    /// Ends the care for a lease. Its renewals stop before its release is sent.
    pub(crate) fn dismiss(&self, belief: &Belief) {
        self.watchdog.forget(belief.number);
        self.record_changed.notify_one();
    }

    /// Gives back what nobody took up, in the background; resolves when it is done.
    pub(crate) fn clean_up(
        self: &Arc<Self>,
        lease: Held,
        landing: Option<Landing>,
    ) -> impl Future<Output = ()> + use<> {
        let pending = self.pending.begin();
        let core = Arc::clone(self);
        // Whatever the store holds for this lease is an offer or a grant of this moment.
        let ends_before = core.clock.now() + lease.ttl.max(OFFER);
        let (done, cleaned) = oneshot::channel::<()>();
        tokio::spawn(async move {
            cleaner::release_for_good(core, lease, landing, ends_before, None, pending).await;
            drop(done);
        });
        async move {
            let _ = cleaned.await;
        }
    }

    /// Gives back a grant that nobody took up.
    pub(crate) fn return_grant(self: &Arc<Self>, belief: &Belief) {
        drop(self.clean_up(belief.held.clone(), belief.landing));
    }

    /// Releases all that is held, ends all waiting, and returns what could not be released.
    pub(crate) async fn shut_down(self: &Arc<Self>, limit: Duration) -> Vec<Lease> {
        self.closed.store(true, Ordering::Release);
        self.lines.close_all();
        let beliefs = self.watchdog.all();
        let mut left = Vec::new();
        let mut releases = tokio::task::JoinSet::new();
        let until = self.clock.now() + limit;
        for belief in beliefs {
            belief.lose(LostReason::Shutdown);
            if !belief.end() {
                continue;
            }
            self.dismiss(&belief);
            let core = Arc::clone(self);
            // Counted, should the caller not wait for the end of this.
            let pending = self.pending.begin();
            releases.spawn(async move {
                let _pending = pending;
                let result = cleaner::release(&core, &belief.held, until).await;
                if belief.landing.is_some() {
                    drop(core.clean_up(belief.held.clone(), belief.landing));
                }
                let done = matches!(result, Ok(Released::WasHeld | Released::AlreadyGone));
                (!done).then(|| belief.lease())
            });
        }
        while let Some(lease) = releases.join_next().await {
            left.extend(lease.ok().flatten());
        }
        let rest = until.saturating_since(self.clock.now());
        let last_words = async {
            self.pending.wait().await;
            // A program that ends after this is no longer listed. The engine's own farewell would
            // do it too, but nobody can wait for that.
            record::erase(self).await;
        };
        let _ = tokio::time::timeout(rest, last_words).await;
        left
    }

    fn releasing(
        self: &Arc<Self>,
        belief: &Belief,
        answer: Option<(oneshot::Sender<Result<Released>>, Moment)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        // Counted before the caller goes on: who waits for what is pending must not miss it.
        let pending = self.pending.begin();
        cleaner::release_for_good(
            Arc::clone(self),
            belief.held.clone(),
            belief.landing,
            belief.ends_before(self.clock.now()),
            answer,
            pending,
        )
    }
}

/// Brings what happens in the store to whom it concerns.
async fn pass_on(core: Arc<Core>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Wake { name, offered_to } => core.lines.wake(&name, offered_to),
            Event::Opened { name, next } => core.lines.opened(&name, next),
            Event::Changed { name } => core.watchdog.changed(&name),
            Event::Missed => {
                core.lines.wake_all();
                core.watchdog.missed();
            }
        }
    }
}
