//! The trait that every store implements, and its requests and replies.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::error::{Error, ErrorKind, Result};
use crate::holder::Holder;
pub(crate) use crate::holder::Slots;
use crate::leader;
use crate::lease::{ClientId, Fence, LeaseId};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::pending_work::Pending;
use crate::standing::LostReason;

mod arrival;
#[cfg(test)]
mod conformance;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod redlock;
mod run_record;

pub(crate) use self::arrival::{Arrival, LatchReply};
pub(crate) use self::run_record::{RunRequest, RunState, RunStep};

/// How long a released lock is reserved at most for the next waiter. Long enough for a slow process
/// to take it, short enough that a dead one costs little.
pub(crate) const OFFER: Duration = Duration::from_secs(2);

/// How long a released lock is reserved for this waiter: no longer than its own ttl, so that a
/// waiter that dies costs no more than a holder that dies.
pub(crate) fn offer_duration(waiter: &LeaseId) -> Duration {
    waiter.ttl().map_or(OFFER, |ttl| ttl.min(OFFER))
}

/// How long a fence counter is kept after the clock has passed its last fence. Without the counter,
/// fences keep growing by the clock; this bounds how many unused names pile up.
pub(crate) const FENCE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is in flight if the reply gets lost, and the reply.
pub(crate) type CallerAcquire<'a> = (
    Option<InFlight>,
    BoxFuture<'a, Result<AcquireReply, Failure>>,
);

/// Tells whether a caller would be delayed if messages stopped coming.
pub(crate) type NeedsMessages = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where leases live. All futures run on the engine, and each resolves by `limit` at the latest.
/// Those of `_on_caller` run on any executor, and resolve at the latest when the connection times
/// out.
pub(crate) trait Store: Send + Sync + 'static {
    /// Starts to send events that concern this client to `events`. Background work that a shutdown
    /// should wait for is counted as `pending`.
    fn start(
        &self,
        client: ClientId,
        events: mpsc::UnboundedSender<Event>,
        pending: Pending,
        attention: NeedsMessages,
    );

    /// Acquires the lock if it is free, in one atomic step. A repetition finds its own grant.
    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        limit: Moment,
    ) -> BoxFuture<'a, Result<AcquireReply, Failure>>;

    /// Like [`acquire`](Store::acquire), but on the caller's own task, if that is possible now.
    fn acquire_on_caller<'a>(&'a self, attempt: &'a Attempt) -> Option<CallerAcquire<'a>>;

    /// Where a lock is in the order in which several are acquired: by this number, then by its name.
    /// The same for all clients of the store.
    fn slot_of(&self, _name: &LockName) -> u16 {
        0
    }

    /// Whether [`acquire_several`](Store::acquire_several) can acquire these locks.
    fn acquires_together(&self, _names: &[&LockName]) -> bool {
        false
    }

    /// Acquires several locks if all of them are free, in one atomic step. The attempts have the same
    /// settings, one fence each, and join no queue. A repetition finds its own grants.
    fn acquire_several<'a>(
        &'a self,
        _attempts: &'a [Attempt],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<SeveralReply, Failure>> {
        let error = Error::new(
            ErrorKind::Unsupported,
            "this store acquires locks one by one only",
        );
        Box::pin(std::future::ready(Err(Failure::refused(error))))
    }

    /// Releases several leases in one call. `None` for a lease that must be released on its own, which
    /// was not changed.
    fn release_several<'a>(
        &'a self,
        leases: &'a [LeaseSpec],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<ReleaseReply>>, Failure>> {
        Box::pin(std::future::ready(Ok(leases
            .iter()
            .map(|_| None)
            .collect())))
    }

    /// Renews the lease for a full ttl. Never creates one. A watched lease stays watched.
    fn renew<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>>;

    /// Renews several leases in one batch, each as [`renew`](Store::renew) does. `None` for a lease
    /// that must be renewed on its own.
    fn renew_all<'a>(
        &'a self,
        leases: Vec<&'a LeaseSpec>,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<RenewReply>>, Failure>>;

    /// How many fences one lease may reserve at most, where unused ones are not given back:
    /// reserving more than it can use would make fences run ahead of the clock.
    fn fences_max(&self) -> u32 {
        u32::MAX
    }

    /// Whether an offer of this store may come with a grant, and this client understands that.
    fn grants_by_offer(&self) -> bool {
        false
    }

    /// The node that has a lock. A batch should be about locks on one node, so that a node that
    /// does not reply delays no other.
    fn node_of(&self, _name: &LockName) -> u64 {
        0
    }

    /// Continues the lease `from` under the id of `lease`, with a full ttl. A repetition finds its
    /// own id.
    fn adopt<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>>;

    /// Continues the lease `from` in the mode and under the id of `lease`, with a full ttl and a new
    /// fence. A repetition finds its own id.
    fn change_mode<'a>(
        &'a self,
        _from: &'a LeaseId,
        _lease: &'a LeaseSpec,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<ModeReply, Failure>> {
        let error = Error::new(ErrorKind::Unsupported, "this store has no shared leases");
        Box::pin(std::future::ready(Err(Failure::refused(error))))
    }

    /// Changes the limit of a semaphore. Leases keep their slots.
    fn resize<'a>(
        &'a self,
        _name: &'a LockName,
        _limit: u32,
        _until: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let error = Error::new(ErrorKind::Unsupported, "this store has no semaphores");
        Box::pin(std::future::ready(Err(Failure::refused(error))))
    }

    /// Takes a step of a run for one fire time of a schedule, and returns what is known after it. A
    /// repetition finds what it did.
    fn run_step<'a>(
        &'a self,
        _request: &'a RunRequest,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<RunState, Failure>> {
        let error = Error::new(ErrorKind::Unsupported, "this store remembers no runs");
        Box::pin(std::future::ready(Err(Failure::refused(error))))
    }

    /// A party arrives at a latch, or a look at one. A repetition changes nothing more.
    fn arrive<'a>(
        &'a self,
        _arrival: &'a Arrival,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<LatchReply, Failure>> {
        let error = Error::new(ErrorKind::Unsupported, "this store has no latches");
        Box::pin(std::future::ready(Err(Failure::refused(error))))
    }

    /// Checks that the lease still exists, and asks for an event when that changes.
    fn watch<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>>;

    /// Ends the lease if it is still this one. Also leaves the queue, and removes the waiter
    /// `dequeue` from it.
    fn release<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>>;

    /// Like [`release`](Store::release), but on the caller's own task, if that is possible now.
    fn release_on_caller<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
    ) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>>;

    /// Asks whose turn it is after this lease. If a waiter joined the queue before `place`, the
    /// lease is released and offered to that waiter. Otherwise it is ours again, with a full ttl
    /// and new fences, and `place` moves to the end of the queue.
    fn turn<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        fences: u32,
        place: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<TurnReply, Failure>>;

    /// Makes sure that an attempt whose reply was lost leaves nothing behind. Returns how long to
    /// wait before trying again, or `None` once it can no longer run.
    fn cancel<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        in_flight: InFlight,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Duration>, Failure>>;

    /// Who holds the lock. Changes nothing.
    fn inspect<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>>;

    /// As [`inspect`](Store::inspect), and asks for [`Event::Changed`] to this client when that
    /// changes, once. Where the store cannot tell, no event comes.
    fn observe<'a>(
        &'a self,
        _client: ClientId,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        self.inspect(name, limit)
    }

    /// Changes the value of a leader if its lease still holds the lock. Never extends the lease. A
    /// repetition changes nothing, nor does a proclamation that arrives after a later one.
    fn proclaim<'a>(
        &'a self,
        proclamation: &'a Proclamation,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>>;

    /// As [`release`](Store::release), but offers the lock to this waiter if it is in the queue and
    /// lives. A store without a queue releases as ever.
    fn release_to<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        _to: &'a LeaseId,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>> {
        self.release(lease, dequeue, limit)
    }

    /// Who holds each of these locks, in few batches. An error about one lock is reported for that
    /// lock.
    fn inspect_all<'a>(
        &'a self,
        names: &'a [LockName],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<InspectResult>, Failure>>;

    /// How long a lock is still held, and how many waiters are ahead of this one: cheaper than an
    /// attempt. `None` if the waiter should try instead: the lock is free or has no expiry, the
    /// place is lost, or the store has no queue.
    fn queue_position<'a>(
        &'a self,
        _name: &'a LockName,
        _place: &'a LeaseId,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Option<QueuePosition>, Failure>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Sends heartbeats for these waiters in one batch, so that they keep their places. For each,
    /// whether it is still in the queue; `None` if unknown.
    fn heartbeat<'a>(
        &'a self,
        places: &'a [QueuedWaiter],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<bool>>, Failure>> {
        Box::pin(std::future::ready(Ok(vec![None; places.len()])))
    }

    /// The live waiters of each lock; `None` where the store does not know.
    fn waiters<'a>(
        &'a self,
        names: &'a [LockName],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<LeaseId>>>, Failure>> {
        Box::pin(std::future::ready(Ok(vec![None; names.len()])))
    }

    /// Subscribes to [`Event::Offered`] and [`Event::Opened`] of this name; resolves when no later
    /// message can be missed.
    fn subscribe<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// Ends [`subscribe`](Store::subscribe).
    fn unsubscribe<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()>;

    /// Tells the client that keeps `holder` that somebody wants its lock. False if nobody heard it,
    /// which says nothing about the lease.
    fn ask<'a>(
        &'a self,
        _name: &'a LockName,
        _holder: &'a LeaseId,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Writes this client's record.
    fn write_record<'a>(
        &'a self,
        client: ClientId,
        change: &'a RecordChange,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RecordWritten, Failure>>;

    /// Reads the record of this client, or of all live clients.
    fn records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> BoxFuture<'_, Result<Vec<Record>, Failure>>;
}

/// One attempt to acquire a lock. The lease id is new for every acquisition and the same for every
/// repetition of it.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) held: LeaseSpec,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
    /// How many fences to reserve: one for the holder, and one for each hand-off.
    pub(crate) fences: u32,
    /// Whether to join the store's queue if the lock is busy.
    pub(crate) queue: bool,
    pub(crate) wish: Wish,
}

/// What is wanted under a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Its lock.
    #[default]
    Lock,
    /// Its lock, but only if no living waiter is ahead.
    InOrder,
    /// Permits of its semaphore.
    Permits(PermitRequest),
}

impl Wish {
    /// What is wanted of a semaphore; `None` for a lock.
    pub(crate) fn permits(self) -> Option<PermitRequest> {
        match self {
            Self::Permits(permits) => Some(permits),
            Self::Lock | Self::InOrder => None,
        }
    }
}

/// What is wanted of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitRequest {
    /// How many permits the semaphore has in all.
    pub(crate) limit: u32,
    /// How many are wanted.
    pub(crate) count: u32,
    /// Whether it may be granted before those who wait for more permits than are free.
    pub(crate) overtakes: bool,
}

/// A value that a leader proclaims.
#[derive(Clone, Debug)]
pub(crate) struct Proclamation {
    pub(crate) held: LeaseSpec,
    pub(crate) term: Fence,
    /// The number of this value, greater with each.
    pub(crate) version: u64,
    pub(crate) value: String,
}

/// A waiter in the queue of a lock.
#[derive(Clone, Debug)]
pub(crate) struct QueuedWaiter {
    pub(crate) name: LockName,
    pub(crate) id: LeaseId,
}

/// What a waiter sees of a held lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePosition {
    /// Until the current lease ends, unless it is renewed.
    pub(crate) remaining: Duration,
    /// How many waiters are ahead in the queue.
    pub(crate) ahead: u64,
}

/// A lease as the store needs to know it.
#[derive(Clone, Debug)]
pub(crate) struct LeaseSpec {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) id: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) has_meta: bool,
    /// How many replicas must confirm each grant and renewal.
    pub(crate) replicas: u32,
    /// The last fence that was used of several reserved ones: the unused ones are given back when
    /// the lease ends.
    pub(crate) last_fence: Option<Fence>,
}

impl LeaseSpec {
    /// A lease of which only this is known. It may have metadata: touching metadata that does not
    /// exist changes nothing.
    pub(crate) fn new(name: LockName, id: LeaseId, ttl: Duration) -> Self {
        Self {
            name,
            mode: id.mode(),
            id,
            ttl,
            has_meta: true,
            replicas: 0,
            last_fence: None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// With the first of the reserved fences.
    Granted {
        fence: Fence,
        sent_at: Moment,
        slots: Slots,
    },
    Busy(Busy),
    NotYet(NotYet),
}

/// The reply to [`acquire_several`](Store::acquire_several).
#[derive(Debug)]
pub(crate) enum SeveralReply {
    /// All are granted, each with its fence.
    Granted {
        fences: Vec<Fence>,
        sent_at: Moment,
    },
    /// None is granted, because at least this one is held.
    Busy {
        at: usize,
        busy: Busy,
    },
    NotYet(NotYet),
}

/// The store replies but may not grant before some moment: it may have forgotten earlier grants,
/// and those must expire first.
#[derive(Debug)]
pub(crate) struct NotYet {
    pub(crate) until: Moment,
    /// The error for a caller that does not wait for it.
    pub(crate) error: Error,
}

/// The current holder, and how long its lease lasts unless renewed. `None`: no expiry.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) holder: LeaseId,
    pub(crate) remaining: Option<Duration>,
    /// How long a waiter that hears nothing may sleep at most; `None` if only the lease decides.
    pub(crate) ask_after: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReply {
    /// It was held. Now the lock is free, or offered to this waiter.
    WasHeld {
        offered_to: Option<LeaseId>,
    },
    /// It was held. Now this waiter of the same client holds the lock.
    Passed {
        to: LeaseId,
        grant: OfferedGrant,
    },
    NotHeld,
}

/// What a waiter may rely on when it is offered the lock, before it has asked the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfferedGrant {
    pub(crate) fence: Fence,
    /// A moment before the store wrote the offer.
    pub(crate) written_at: Moment,
    /// Until when it may be believed: the offer certainly lasts longer.
    pub(crate) until: Moment,
}

/// The reply to [`turn`](Store::turn).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TurnReply {
    /// Ours again, with the first of the reserved fences.
    Again { fence: Fence, sent_at: Moment },
    /// Another waiter's, or the lease was gone.
    Passed(ReleaseReply),
}

#[derive(Debug)]
pub(crate) enum RenewReply {
    /// Held for a full ttl, counted from this moment.
    Until {
        sent_at: Moment,
    },
    NotHeld(NotHeld),
    /// It was renewed, but too few replicas have confirmed it, so it does not count.
    Unconfirmed(Failure),
}

#[derive(Debug)]
pub(crate) enum ModeReply {
    /// Held in the other mode for a full ttl, with this fence.
    Changed {
        fence: Fence,
        sent_at: Moment,
    },
    /// So many other readers share the lock, and so many waiters want it. Nothing was changed.
    Shared {
        readers: u64,
        waiters: u64,
    },
    NotHeld(NotHeld),
}

#[derive(Debug)]
pub(crate) enum WatchReply {
    Held,
    NotHeld(NotHeld),
}

/// The store does not have the lease: another lease is in its place, or none.
#[derive(Debug)]
pub(crate) struct NotHeld {
    pub(crate) taken_by: Option<LeaseId>,
}

impl NotHeld {
    /// Why the former holder lost it.
    pub(crate) fn reason(&self) -> LostReason {
        match self.taken_by {
            Some(_) => LostReason::Taken,
            None => LostReason::Gone,
        }
    }
}

/// The state of one lock of several.
pub(crate) type InspectResult = Result<Option<LockState>, Failure>;

/// A held lock, as the store sees it.
#[derive(Debug)]
pub(crate) struct LockState {
    pub(crate) id: LeaseId,
    pub(crate) remaining: Option<Duration>,
    pub(crate) fence: Option<Fence>,
    pub(crate) meta: BTreeMap<String, String>,
    /// The leases that share the lock, if `id` is in place of them.
    pub(crate) readers: Readers,
}

/// The leases that share a lock, or have permits of a semaphore.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Readers {
    /// How many there are.
    pub(crate) count: u64,
    /// Those whose leases end last, at most [`READERS_SHOWN`].
    pub(crate) shown: Vec<LeaseId>,
    /// The slots of each of these, if they have permits of a semaphore.
    pub(crate) slots: BTreeMap<LeaseId, Slots>,
}

/// How many readers of a lock a look at it returns.
pub(crate) const READERS_SHOWN: usize = 100;

impl From<LockState> for Holder {
    fn from(state: LockState) -> Self {
        Self {
            readers: state.readers.count,
            reader_leases: state.readers.shown,
            slots: state.readers.slots,
            lease: state.id,
            remaining: state.remaining,
            fence: leader::term_of(&state.meta).or(state.fence),
            meta: state.meta,
            kept: false,
            client: None,
        }
    }
}

impl From<&Busy> for Holder {
    fn from(busy: &Busy) -> Self {
        Self {
            lease: busy.holder.clone(),
            remaining: busy.remaining,
            fence: busy.holder.phase(),
            meta: BTreeMap::new(),
            kept: false,
            client: None,
            readers: 0,
            reader_leases: Vec::new(),
            slots: BTreeMap::new(),
        }
    }
}

/// A client, and the fields of its record.
pub(crate) type Record = (ClientId, BTreeMap<String, String>);

/// A change of a client record.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordChange {
    /// Replace the record instead of changing it.
    pub(crate) all: bool,
    pub(crate) set: Vec<(String, String)>,
    pub(crate) removed: Vec<String>,
    /// How long the record is valid without another write; zero deletes it.
    pub(crate) ttl: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordWritten {
    Yes,
    /// There is no record to change: write all of it.
    Missing,
}

/// Something that happened in the store.
#[derive(Debug)]
pub(crate) enum Event {
    /// The lock was offered to this lease.
    Offered {
        name: LockName,
        offered_to: LeaseId,
        grant: Option<OfferedGrant>,
    },
    /// The lock is free and any waiter may acquire it. If this waiter is next, it holds back for a
    /// moment, and the others for as long as if the lock had been offered to it.
    Opened {
        name: LockName,
        next: Option<LeaseId>,
    },
    /// The lock is reserved for the next waiter for this long only, because that waiter may be
    /// dead.
    ShortOffer { name: LockName, lasts: Duration },
    /// One node of several no longer has this lease, and this many processes are subscribed there.
    Freed {
        name: LockName,
        lease: LeaseId,
        listeners: u32,
    },
    /// Another client wants this lock, which this client holds or keeps by this lease.
    Asked { name: LockName, lease: LeaseId },
    /// The key of a watched lease or of an observed lock changed: check it.
    Changed { name: LockName },
    /// Messages may have been lost: all waiters and watched leases must check.
    MessagesLost,
    /// Messages about this lock may have been lost: its waiters must check.
    MessagesLostFor { name: LockName },
}

/// A call without a useful reply.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether a retry may help.
    pub(crate) transient: bool,
    /// Set if the call may have run, or may still run: its reply was lost.
    pub(crate) in_flight: Option<InFlight>,
}

impl Failure {
    /// Refused: nothing was done, and a retry would not change that.
    pub(crate) fn refused(error: Error) -> Self {
        Self {
            error,
            transient: false,
            in_flight: None,
        }
    }

    /// A copy, for another call with the same failure.
    pub(crate) fn share(&self) -> Self {
        Self {
            error: self.error.share(),
            ..*self
        }
    }

    /// Nothing was done, but a retry may help.
    pub(crate) fn not_sent(error: Error) -> Self {
        Self {
            error,
            transient: true,
            in_flight: None,
        }
    }
}

/// The refusal of a permit because the semaphore has another limit.
pub(crate) fn other_limit(attempt: &Attempt, limit: u32) -> Failure {
    let name = &attempt.held.name;
    let asked = attempt.wish.permits().map_or(0, |permits| permits.limit);
    Failure::refused(Error::new(
        ErrorKind::Mismatch,
        format!(
            "cannot get a permit of `{name}` with the limit `{asked}`: the semaphore has the limit \
             `{limit}`; use the same limit in every program, or change it with `resize`"
        ),
    ))
}

/// The refusal of a permit because the name is that of a lock.
pub(crate) fn a_lock(name: &LockName, holder: &LeaseId) -> Failure {
    Failure::refused(Error::new(
        ErrorKind::NotALock,
        format!(
            "cannot use `{name}` as a semaphore: it is a lock, held by `{holder}`; use another name"
        ),
    ))
}

/// The refusal of a lock because the name is that of a semaphore.
fn a_semaphore(name: &LockName, limit: u32) -> Failure {
    Failure::refused(Error::new(
        ErrorKind::NotALock,
        format!(
            "cannot lock `{name}`: it is a semaphore with the limit `{limit}`; use \
             `semaphore`, or another name"
        ),
    ))
}

/// The refusal of a lock because the name is that of a latch.
fn a_latch(name: &LockName) -> Failure {
    Failure::refused(Error::new(
        ErrorKind::NotALock,
        format!("cannot lock `{name}`: it is a latch; use `latch`, or another name"),
    ))
}

/// The refusal of a lock if its name is that of something else.
pub(crate) fn another_kind(name: &LockName, holder: &LeaseId) -> Option<Failure> {
    if holder.latch().is_some() {
        return Some(a_latch(name));
    }
    let limit = holder.semaphore_limit()?;
    Some(a_semaphore(name, limit))
}

/// A request whose reply was lost, and until when the server may still run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// The connection it was sent on, if it was only one: a later request there arrives later.
    pub(crate) connection: Option<u64>,
    /// The latest moment by the server's clock, in microseconds, that the request carries.
    pub(crate) latest_us: u64,
}

impl InFlight {
    /// Covers both requests.
    pub(crate) fn and(self, earlier: Option<InFlight>) -> InFlight {
        let Some(earlier) = earlier else { return self };
        InFlight {
            connection: self
                .connection
                .filter(|connection| earlier.connection == Some(*connection)),
            latest_us: self.latest_us.max(earlier.latest_us),
        }
    }
}
