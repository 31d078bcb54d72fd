//! A client as its handles and guards share it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::belief::Belief;
use crate::core::Core;
use crate::engine::release::{self, ReleaseRequest};
use crate::engine::{Engine, client_record, heartbeat, keep, watchdog};
use crate::error::{Error, Result};
use crate::lease::LeaseId;
use crate::moment::Clock;
use crate::name::LockName;
use crate::pending_work::PendingOne;
use crate::settings::Settings;
use crate::standing::Released;
use crate::stats::Stats;
use crate::store::{Event, NeedsMessages, Store};

/// How long the engine continues with releases after the last handle is gone.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(5);

/// A client as its handles and guards share it. When the last of them is gone, the engine finishes
/// pending work and ends.
pub(crate) struct ClientHandle {
    pub(crate) core: Arc<Core>,
    pub(crate) engine: Engine,
}

impl ClientHandle {
    /// Starts all parts. Must be called on the engine.
    pub(crate) fn start(
        engine: Engine,
        settings: Settings,
        clock: Clock,
        store: Arc<dyn Store>,
        stats: Arc<Stats>,
    ) -> Arc<Self> {
        let core = Arc::new(Core::new(settings, clock, store, stats));
        let (events, happened) = mpsc::unbounded_channel();
        let (pending, attention) = (core.pending.clone(), needs_messages(&core));
        core.store.start(core.id, events, pending, attention);
        tokio::spawn(dispatch_events(Arc::clone(&core), happened));
        tokio::spawn(watchdog::task::run(Arc::clone(&core)));
        tokio::spawn(client_record::run(Arc::clone(&core)));
        tokio::spawn(heartbeat::run(Arc::clone(&core)));
        tokio::spawn(keep::run(Arc::clone(&core)));
        if !core.settings.keep.is_zero() && core.kept.begin_to_hear() {
            tokio::spawn(keep::listen(Arc::clone(&core)));
        }
        let stopping = Arc::clone(&core);
        engine.on_stop(async move {
            keep::let_go_all(&stopping);
            let write_record = async {
                stopping.pending.wait().await;
                client_record::write_final(&stopping).await;
                stopping.pending.wait().await;
            };
            let _ = tokio::time::timeout(SHUTDOWN_WAIT_MAX, write_record).await;
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
    pub(crate) fn release_in_background(&self, belief: &Belief, dequeue: Option<LeaseId>) {
        let request = self.core.release_request(belief, dequeue);
        self.core.release_started(&request.lease.name);
        self.engine.spawn(self.core.release_task(request, None));
    }

    /// Releases and returns the result, or that it is not known in time.
    pub(crate) async fn release(
        &self,
        belief: &Belief,
        dequeue: Option<LeaseId>,
    ) -> Result<Released> {
        self.release_lease(self.core.release_request(belief, dequeue))
            .await
    }

    /// The same for a lease without a guard.
    pub(crate) async fn release_lease(&self, request: ReleaseRequest) -> Result<Released> {
        let answer_by = self.core.clock.now() + self.core.settings.unreachable_after;
        self.core.release_started(&request.lease.name);
        let mut unfinished = UnfinishedRelease {
            client: self,
            request: Some(request),
            _pending: self.core.pending.begin(),
        };
        if let Some(request) = unfinished
            .request
            .as_mut()
            .filter(|it| it.in_flight.is_none())
        {
            match release::try_on_caller(&self.core, request).await {
                Ok(released) => {
                    unfinished.request = None;
                    return released;
                }
                Err(unknown) => request.unknown = unknown,
            }
        }
        let Some(request) = unfinished.request.take() else {
            return Ok(Released::Unknown);
        };
        let (reply, answer) = oneshot::channel();
        let releasing = self.core.release_task(request, Some((reply, answer_by)));
        self.engine.spawn(releasing);
        answer.await.unwrap_or(Ok(Released::Unknown))
    }
}

/// A release that its caller began. If dropped before it is done, it continues in the background.
struct UnfinishedRelease<'a> {
    client: &'a ClientHandle,
    request: Option<ReleaseRequest>,
    _pending: PendingOne,
}

impl Drop for UnfinishedRelease<'_> {
    fn drop(&mut self) {
        if let Some(mut request) = self.request.take() {
            // It may have been sent, and its reply goes to nobody.
            request.unknown = true;
            let releasing = self.client.core.release_task(request, None);
            self.client.engine.spawn(releasing);
        }
    }
}

/// Messages are needed while a lease is held and watched, by waiters that may be next, and by
/// observers.
fn needs_messages(core: &Arc<Core>) -> NeedsMessages {
    let core = Arc::downgrade(core);
    Arc::new(move || {
        let attends = |core: Arc<Core>| {
            !core.watchdog.is_idle() || core.queues.needs_messages() || !core.observers.is_empty()
        };
        core.upgrade().is_some_and(attends)
    })
}

/// Dispatches events of the store.
async fn dispatch_events(core: Arc<Core>, mut events: mpsc::UnboundedReceiver<Event>) {
    let keeper = LockName::of_keeper(core.id);
    while let Some(event) = events.recv().await {
        match event {
            Event::Offered {
                name,
                offered_to,
                grant,
            } => core.queues.offered(core.id, &name, offered_to, grant),
            Event::ShortOffer { name, lasts } => core.queues.short_offer(&name, lasts),
            Event::Opened { name, next } => core.queues.opened(&name, next),
            Event::Freed { name, .. } => core.queues.opened(&name, None),
            Event::Changed { name } => {
                core.watchdog.recheck(&name);
                core.observers.changed(&name);
            }
            Event::Asked { name, lease } => keep::on_asked(&core, &name, &lease),
            Event::MessagesLostFor { name } if name == keeper => keep::let_go_all(&core),
            Event::MessagesLostFor { name } => {
                core.queues.retry(&name);
                core.observers.changed(&name);
            }
            Event::MessagesLost => {
                keep::let_go_all(&core);
                core.queues.retry_all();
                core.watchdog.recheck_all();
                core.observers.changed_all();
            }
        }
    }
}
