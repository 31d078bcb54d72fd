//! The store inside the process: the state machine behind a mutex. Needs no server; its contents
//! end with the process.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

use self::machine::{Absent, Effect, Machine, MachineReply, ModeUnchanged};
use crate::error::{Error, Result};
use crate::lease::{ClientId, LeaseId};
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending_work::Pending;
use crate::store::{
    AcquireReply, Arrival, Attempt, BoxFuture, Busy, CallerAcquire, Event, Failure, InFlight,
    InspectResult, LatchReply, LeaseSpec, LockState, ModeReply, NeedsMessages, NotHeld,
    Proclamation, Record, RecordChange, RecordWritten, ReleaseReply, RenewReply, RunRequest,
    RunState, SeveralReply, Slots, Store, TurnReply, WatchReply, a_lock, other_limit,
};

mod latches;
pub(crate) mod machine;
mod permits;
mod runs;

/// Stores that were opened by name and are still in use.
static SHARED: Mutex<Option<HashMap<String, Weak<MemoryStore>>>> = Mutex::new(None);

pub(crate) struct MemoryStore {
    clock: Clock,
    /// When the store started, and the wall clock at that moment. From then on it counts by the
    /// clock that measures leases, because the wall clock can be set.
    began: Moment,
    began_us: u64,
    /// A std mutex, not an async one: never held across an await.
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    machine: Machine,
    listeners: HashMap<ClientId, mpsc::UnboundedSender<Event>>,
}

impl MemoryStore {
    /// The store of `memory://`, private to its client.
    pub(crate) fn private(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            began: clock.now(),
            began_us: clock.wall_micros(),
            clock,
            state: Mutex::default(),
        })
    }

    /// The store of `memory://name`, shared by all clients of this process that name it.
    ///
    /// # Errors
    ///
    /// If the store uses another clock: clients with different clocks cannot agree on deadlines.
    pub(crate) fn shared(name: &str, clock: Clock) -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let stores = shared.get_or_insert_default();
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            if !store.clock.is_same(&clock) {
                let cause = "clients that share a memory store must share its clock";
                let shown = format!("{clock:?}");
                return Err(Error::invalid_setting("the clock", shown, cause));
            }
            return Ok(store);
        }
        let store = Self::private(clock);
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        Ok(store)
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release_now(
        &self,
        lease: &LeaseSpec,
        places: (Option<&LeaseId>, Option<&LeaseId>),
    ) -> ReleaseReply {
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let release = state.machine.release(now_us, lease, places, &mut effects);
        state.publish(effects);
        release
    }

    fn now_us(&self) -> u64 {
        let since = self.clock.now().saturating_since(self.began);
        let since_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        self.began_us.saturating_add(since_us)
    }
}

impl MemoryState {
    fn publish(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let (client, event) = event_for_client(effect);
            let Some(client) = client else { continue };
            let sent = self.listeners.get(&client).map(|it| it.send(event));
            if sent.is_some_and(|sent| sent.is_err()) {
                self.listeners.remove(&client);
            }
        }
    }
}

impl Store for MemoryStore {
    fn start(
        &self,
        client: ClientId,
        events: mpsc::UnboundedSender<Event>,
        _: Pending,
        _: NeedsMessages,
    ) {
        let mut state = self.state();
        state.listeners.retain(|_, listener| !listener.is_closed());
        state.listeners.insert(client, events);
    }

    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<AcquireReply, Failure>> {
        let sent_at = self.clock.now();
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let reply = state.machine.acquire(now_us, attempt, &mut effects);
        state.publish(effects);
        drop(state);
        let name = &attempt.held.name;
        done(match reply {
            MachineReply::Granted(fence) => Ok(AcquireReply::Granted {
                fence,
                sent_at,
                slots: Slots::default(),
            }),
            MachineReply::Permitted { fence, slots } => Ok(AcquireReply::Granted {
                fence,
                sent_at,
                slots,
            }),
            MachineReply::Busy { holder, left_us } => Ok(AcquireReply::Busy(Busy {
                ask_after: None,
                holder,
                remaining: Some(Duration::from_micros(left_us)),
            })),
            MachineReply::OtherLimit(limit) => Err(other_limit(attempt, limit)),
            MachineReply::Lock(holder) => Err(a_lock(name, &holder)),
        })
    }

    fn acquire_on_caller<'a>(&'a self, attempt: &'a Attempt) -> Option<CallerAcquire<'a>> {
        Some((None, self.acquire(attempt, self.clock.now())))
    }

    fn acquires_together(&self, _names: &[&LockName]) -> bool {
        true
    }

    fn acquire_several<'a>(
        &'a self,
        attempts: &'a [Attempt],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<SeveralReply, Failure>> {
        let sent_at = self.clock.now();
        let mut state = self.state();
        let mut effects = Vec::new();
        let now_us = self.now_us();
        let reply = state
            .machine
            .acquire_several(now_us, attempts, &mut effects);
        state.publish(effects);
        drop(state);
        done(Ok(match reply {
            Ok(fences) => SeveralReply::Granted { fences, sent_at },
            Err((at, holder, left_us)) => SeveralReply::Busy {
                at,
                busy: Busy {
                    ask_after: None,
                    holder,
                    remaining: Some(Duration::from_micros(left_us)),
                },
            },
        }))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        _watched: bool,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>> {
        let sent_at = self.clock.now();
        let reply = self.state().machine.renew(self.now_us(), lease);
        done(Ok(renewed(reply, sent_at)))
    }

    fn renew_all<'a>(
        &'a self,
        leases: Vec<&'a LeaseSpec>,
        _watched: bool,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<RenewReply>>, Failure>> {
        let sent_at = self.clock.now();
        let mut state = self.state();
        let mut renew = |lease| state.machine.renew(self.now_us(), lease);
        let renewals = leases
            .into_iter()
            .map(|lease| renewed(renew(lease), sent_at));
        done(Ok(renewals.map(Some).collect()))
    }

    fn adopt<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>> {
        let sent_at = self.clock.now();
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let reply = state.machine.adopt(now_us, from, lease, &mut effects);
        state.publish(effects);
        done(Ok(renewed(reply, sent_at)))
    }

    fn change_mode<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<ModeReply, Failure>> {
        let sent_at = self.clock.now();
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let changed = state.machine.change_mode(now_us, from, lease, &mut effects);
        state.publish(effects);
        done(Ok(match changed {
            Ok(fence) => ModeReply::Changed { fence, sent_at },
            Err(ModeUnchanged::Shared { readers, waiters }) => {
                ModeReply::Shared { readers, waiters }
            }
            Err(ModeUnchanged::Absent(absent)) => ModeReply::NotHeld(NotHeld {
                taken_by: absent.taken_by,
            }),
        }))
    }

    fn resize<'a>(
        &'a self,
        name: &'a LockName,
        limit: u32,
        _until: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let resized = state.machine.resize(now_us, name, limit, &mut effects);
        state.publish(effects);
        done(resized.map_err(|holder| a_lock(name, &holder)))
    }

    fn run_step<'a>(
        &'a self,
        request: &'a RunRequest,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<RunState, Failure>> {
        let now_us = self.now_us();
        done(Ok(self.state().machine.run_step(now_us, request)))
    }

    fn arrive<'a>(
        &'a self,
        arrival: &'a Arrival,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<LatchReply, Failure>> {
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let reply = state.machine.arrive(now_us, arrival, &mut effects);
        state.publish(effects);
        done(Ok(reply))
    }

    fn watch<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>> {
        let reply = self.state().machine.watch(self.now_us(), lease);
        done(Ok(watched(reply)))
    }

    fn release<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>> {
        done(Ok(self.release_now(lease, (dequeue, None))))
    }

    fn release_to<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        to: &'a LeaseId,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>> {
        done(Ok(self.release_now(lease, (dequeue, Some(to)))))
    }

    fn release_on_caller<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
    ) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>> {
        Some(self.release(lease, dequeue, self.clock.now()))
    }

    fn turn<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        fences: u32,
        place: Option<&'a LeaseId>,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<TurnReply, Failure>> {
        let sent_at = self.clock.now();
        let mut effects = Vec::new();
        let mut state = self.state();
        let turn = state
            .machine
            .turn(self.now_us(), lease, fences, place, &mut effects);
        state.publish(effects);
        done(Ok(match turn {
            Ok(fence) => TurnReply::Again { fence, sent_at },
            Err(release) => TurnReply::Passed(release),
        }))
    }

    fn cancel<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        _landing: InFlight,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Duration>, Failure>> {
        // Nothing is ever in flight here: every call has run when it returns.
        Box::pin(async move { self.release(lease, None, limit).await.map(|_| None) })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a LockName,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        let found = self.state().machine.inspect(self.now_us(), name);
        done(Ok(found))
    }

    fn observe<'a>(
        &'a self,
        client: ClientId,
        name: &'a LockName,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        let found = self.state().machine.observe(self.now_us(), client, name);
        done(Ok(found))
    }

    fn proclaim<'a>(
        &'a self,
        proclamation: &'a Proclamation,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>> {
        let mut effects = Vec::new();
        let mut state = self.state();
        let now_us = self.now_us();
        let reply = state.machine.proclaim(now_us, proclamation, &mut effects);
        state.publish(effects);
        done(Ok(watched(reply)))
    }

    fn inspect_all<'a>(
        &'a self,
        names: &'a [LockName],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<InspectResult>, Failure>> {
        let mut state = self.state();
        let now_us = self.now_us();
        let looked = names.iter().map(|name| state.machine.inspect(now_us, name));
        done(Ok(looked.map(Ok).collect()))
    }

    fn waiters<'a>(
        &'a self,
        names: &'a [LockName],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<LeaseId>>>, Failure>> {
        let state = self.state();
        let waiters = names.iter().map(|name| Some(state.machine.waiters(name)));
        done(Ok(waiters.collect()))
    }

    fn subscribe<'a>(
        &'a self,
        _name: &'a LockName,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        // Offers go to one client directly, so no subscription is needed.
        done(Ok(()))
    }

    fn unsubscribe<'a>(&'a self, _name: &'a LockName, _limit: Moment) -> BoxFuture<'a, ()> {
        done(())
    }

    fn ask<'a>(
        &'a self,
        name: &'a LockName,
        holder: &'a LeaseId,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        let event = Event::Asked {
            name: name.clone(),
            lease: holder.clone(),
        };
        let state = self.state();
        let keeper = holder.keeper().and_then(|it| state.listeners.get(&it));
        done(Ok(keeper.is_some_and(|it| it.send(event).is_ok())))
    }

    fn write_record<'a>(
        &'a self,
        client: ClientId,
        change: &'a RecordChange,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<RecordWritten, Failure>> {
        let now_us = self.now_us();
        done(Ok(self
            .state()
            .machine
            .write_record(now_us, client, change)))
    }

    fn records(
        &self,
        only: Option<ClientId>,
        _limit: Moment,
    ) -> BoxFuture<'_, Result<Vec<Record>, Failure>> {
        let now_us = self.now_us();
        done(Ok(self.state().machine.records(now_us, only)))
    }
}

impl From<Absent> for NotHeld {
    fn from(absent: Absent) -> Self {
        Self {
            taken_by: absent.taken_by,
        }
    }
}

fn renewed(reply: Result<(), Absent>, sent_at: Moment) -> RenewReply {
    match reply {
        Ok(()) => RenewReply::Until { sent_at },
        Err(absent) => RenewReply::NotHeld(absent.into()),
    }
}

fn watched(reply: Result<(), Absent>) -> WatchReply {
    match reply {
        Ok(()) => WatchReply::Held,
        Err(absent) => WatchReply::NotHeld(absent.into()),
    }
}

/// The event, and the one client that it concerns. Other clients need not know: inside a process, a
/// waiter always takes its offer.
fn event_for_client(effect: Effect) -> (Option<ClientId>, Event) {
    match effect {
        Effect::Offered { name, to } => {
            let event = Event::Offered {
                name,
                offered_to: to.clone(),
                grant: None,
            };
            (to.client(), event)
        }
        Effect::Admitted { name, reader } => {
            let event = Event::Offered {
                name,
                offered_to: reader.clone(),
                grant: None,
            };
            (reader.client(), event)
        }
        Effect::Changed { name, lease } => (lease.client(), Event::Changed { name }),
        Effect::Observed { name, by } => (Some(by), Event::Changed { name }),
    }
}

fn done<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(ready(value))
}
