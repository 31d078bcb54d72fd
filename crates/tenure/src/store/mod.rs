//! What every store can do, and what it answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::error::{Error, Result};
use crate::guard::LostReason;
use crate::lease::{ClientId, Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::pending::Pending;

#[cfg(test)]
mod conformance;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod redlock;

/// How long a released lock is kept at most for the waiter whose turn it is. Long enough for a
/// slow process to take it up, short enough that a dead one costs little.
pub(crate) const OFFER: Duration = Duration::from_secs(2);

/// How long a store that owes an answer may stay silent.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a released lock is kept for this waiter: no longer than its own lease would last, so
/// that one that dies while it waits costs no more than one that dies while it holds.
pub(crate) fn offer_duration(waiter: &LeaseId) -> Duration {
    waiter.ttl().map_or(OFFER, |ttl| ttl.min(OFFER))
}

/// How long a fence counter is kept after the clock has passed its last fence. Fences go on growing
/// by the clock when it is gone; this bounds how many unused names pile up.
pub(crate) const FENCE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where an attempt may land if its answer is lost, and the answer.
pub(crate) type CallerAcquire<'a> = (
    Option<InFlight>,
    BoxFuture<'a, Result<AcquireReply, Failure>>,
);

/// Whether somebody must learn soon that messages no longer come.
pub(crate) type NeedsMessages = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where leases live. All futures run on the engine, and each is answered by `limit` at the
/// latest; those of `_here` run anywhere, and are answered when the store is found to be silent at
/// the latest.
pub(crate) trait Store: Send + Sync + 'static {
    /// Begins to send what happens in the store and concerns this client to `events`.
    /// What it goes on with by itself for a moment is counted as `pending`.
    fn start(
        &self,
        client: ClientId,
        events: mpsc::UnboundedSender<Event>,
        pending: Pending,
        attention: NeedsMessages,
    );

    /// Takes the lock if it is free, in one atomic step. Repeating it finds its own grant.
    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        limit: Moment,
    ) -> BoxFuture<'a, Result<AcquireReply, Failure>>;

    /// Asks as [`acquire`](Store::acquire) does, but on the caller's own task, if that is possible
    /// at this moment.
    fn acquire_on_caller<'a>(&'a self, attempt: &'a Attempt) -> Option<CallerAcquire<'a>>;

    /// Gives the lease a full ttl again. Never creates one. A watched lease stays watched.
    fn renew<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>>;

    /// Renews several leases in one piece, each as [`renew`](Store::renew) does. `None` for one
    /// that must be asked for by itself.
    fn renew_all<'a>(
        &'a self,
        leases: Vec<&'a LeaseSpec>,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<RenewReply>>, Failure>>;

    /// How many fences one lease may reserve at most, where unused ones are not given back: more than
    /// it can use up in its turn would make fences run ahead of the clock.
    fn fences_max(&self) -> u32 {
        u32::MAX
    }

    /// Where a lock is. What is asked in one piece should be about locks at one place, so that one
    /// that does not answer delays nobody else.
    fn node_of(&self, _name: &LockName) -> u64 {
        0
    }

    /// Goes on with the lease `from` under the id of `lease`, with a full ttl. Repeating it finds
    /// its own id.
    fn adopt<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>>;

    /// Looks whether the lease is still there, and asks to be told when that changes.
    fn watch<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>>;

    /// Ends the lease if it is still this one. Also gives up its place in the queue, and another
    /// one: `dequeue`.
    fn release<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>>;

    /// Releases as [`release`](Store::release) does, but on the caller's own task, if that is
    /// possible at this moment.
    fn release_on_caller<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
    ) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>>;

    /// Asks whose turn it is after this lease. Somebody's who has stood in the queue for longer
    /// than `place`: then it is released and offered to that one. Or ours again: then it is given
    /// a full ttl, further fences, and `place` goes to the end of the queue.
    fn turn<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        fences: u32,
        place: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<TurnReply, Failure>>;

    /// Makes sure that an attempt whose reply was lost leaves nothing behind. Answers how long to
    /// wait before asking again, or `None` when it can no longer land.
    fn cancel<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        in_flight: InFlight,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Duration>, Failure>>;

    /// Who holds the lock, without taking it.
    fn inspect<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>>;

    /// Who holds each of these locks, asked for in few pieces. What keeps one of them from being
    /// looked at is told of that one.
    fn inspect_all<'a>(
        &'a self,
        names: &'a [LockName],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<InspectResult>, Failure>>;

    /// How long a lock is held, and how many wait for it before the waiter at this place: cheaper than
    /// an attempt. `None` if that is no reason not to ask: it is free or without an end, the place is
    /// lost, or the store has no queue that can be seen.
    fn queue_position<'a>(
        &'a self,
        _name: &'a LockName,
        _place: &'a LeaseId,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Option<QueuePosition>, Failure>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Says that the waiters at these places live, so that they keep them, in one piece. Answers of each
    /// whether it still stands in the queue; `None` if nothing is known of it.
    fn heartbeat<'a>(
        &'a self,
        places: &'a [QueuedWaiter],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<bool>>, Failure>> {
        Box::pin(std::future::ready(Ok(vec![None; places.len()])))
    }

    /// The waiters of each of these locks that live; `None` where the store does not know.
    fn waiters<'a>(
        &'a self,
        names: &'a [LockName],
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<LeaseId>>>, Failure>> {
        Box::pin(std::future::ready(Ok(vec![None; names.len()])))
    }

    /// Asks for [`Event::Offered`] and [`Event::Opened`] of this name; answered when no later message can be missed.
    fn subscribe<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// Ends [`listen`](Store::subscribe).
    fn unsubscribe<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()>;

    /// Writes what this client says of itself.
    fn write_record<'a>(
        &'a self,
        client: ClientId,
        change: &'a RecordChange,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RecordWritten, Failure>>;

    /// Reads the records of these clients, or of all that are alive.
    fn records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> BoxFuture<'_, Result<Vec<Record>, Failure>>;
}

/// One attempt to take a lock. The lease id is fresh for every acquisition and the same for every
/// repetition of it.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) held: LeaseSpec,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
    /// How many fences to reserve: one for the holder, and one for each to whom it may be handed
    /// off.
    pub(crate) fences: u32,
    /// Whether to stand in the store's queue if the lock is busy.
    pub(crate) queue: bool,
}

/// A place in the queue of a lock.
#[derive(Clone, Debug)]
pub(crate) struct QueuedWaiter {
    pub(crate) name: LockName,
    pub(crate) id: LeaseId,
}

/// What a waiter sees of a lock that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePosition {
    /// Until the present lease ends, unless it is renewed.
    pub(crate) remaining: Duration,
    /// How many stand before the waiter in the queue.
    pub(crate) ahead: u64,
}

/// What identifies a lease to the store.
#[derive(Clone, Debug)]
pub(crate) struct LeaseSpec {
    pub(crate) name: LockName,
    pub(crate) id: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) has_meta: bool,
    /// How many replicas must confirm each grant and renewal.
    pub(crate) replicas: u32,
    /// The last fence that was used of several that were reserved: the others are given back when the
    /// lease ends.
    pub(crate) last_fence: Option<Fence>,
}

#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// With the first of the fences that were reserved.
    Granted {
        fence: Fence,
        sent_at: Moment,
    },
    Busy(Busy),
    NotYet(NotYet),
}

/// A store that answers, but may not grant before some moment: what it granted earlier may have
/// been forgotten, and must have ended first.
#[derive(Debug)]
pub(crate) struct NotYet {
    pub(crate) until: Moment,
    /// What a caller is told who does not wait for it.
    pub(crate) error: Error,
}

/// Who was in the way, and for how long if nothing changes. Without expiry: `None`.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) holder: LeaseId,
    pub(crate) remaining: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReply {
    /// It was held. Now the lock is free, or offered to this waiter.
    WasHeld {
        offered_to: Option<LeaseId>,
    },
    NotHeld,
}

/// Whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TurnReply {
    /// Ours again, with the first of the fences that were reserved.
    Again { fence: Fence, sent_at: Moment },
    /// Somebody else's, or the lease was gone.
    Passed(ReleaseReply),
}

#[derive(Debug)]
pub(crate) enum RenewReply {
    /// Held for a full ttl, counted from this moment.
    Until {
        sent_at: Moment,
    },
    NotHeld(NotHeld),
    /// It was renewed, but too few replicas know of it: that counts for nothing.
    Unconfirmed(Failure),
}

#[derive(Debug)]
pub(crate) enum WatchReply {
    Held,
    NotHeld(NotHeld),
}

/// A lease that the store does not have: somebody else's stands in its place, or nothing.
#[derive(Debug)]
pub(crate) struct NotHeld {
    pub(crate) taken_by: Option<LeaseId>,
}

impl NotHeld {
    /// What that means to whoever believed to hold it.
    pub(crate) fn reason(&self) -> LostReason {
        match self.taken_by {
            Some(_) => LostReason::Taken,
            None => LostReason::Gone,
        }
    }
}

/// What looking at one lock of several has shown.
pub(crate) type InspectResult = Result<Option<LockState>, Failure>;

/// What stands at the name of a lock.
#[derive(Debug)]
pub(crate) struct LockState {
    pub(crate) id: LeaseId,
    pub(crate) remaining: Option<Duration>,
    pub(crate) fence: Option<Fence>,
    pub(crate) meta: BTreeMap<String, String>,
}

/// A client, and the fields of the record that it keeps about itself.
pub(crate) type Record = (ClientId, BTreeMap<String, String>);

/// A change of the record that a client keeps about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordChange {
    /// Begin anew instead of changing what is there.
    pub(crate) all: bool,
    pub(crate) set: Vec<(String, String)>,
    pub(crate) removed: Vec<String>,
    /// How long the record is believed without a word from the client; zero takes it away.
    pub(crate) ttl: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordWritten {
    Yes,
    /// There was nothing to change: write it all.
    Missing,
}

/// Something that happened in the store.
#[derive(Debug)]
pub(crate) enum Event {
    /// The lock was offered to this lease.
    Offered { name: LockName, offered_to: LeaseId },
    /// The lock is free. Whoever waits may take it; if it is the turn of this waiter, it holds back
    /// for a moment, and the others for as long as if the lock had been offered to it.
    Opened {
        name: LockName,
        next: Option<LeaseId>,
    },
    /// The lock is kept for the waiter whose turn it is for so long only: perhaps that one has died.
    ShortOffer { name: LockName, lasts: Duration },
    /// One node of several no longer has this lease, and so many processes hear it there.
    Freed {
        name: LockName,
        lease: LeaseId,
        listeners: u32,
    },
    /// The key of a watched lease changed; look again.
    Changed { name: LockName },
    /// Messages may have been missed; everyone look again.
    MessagesLost,
    /// Messages about this lock may have been missed; whoever waits for it look again.
    MessagesLostFor { name: LockName },
}

/// A call that got no useful answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether trying again soon may help.
    pub(crate) transient: bool,
    /// Set if the call may have been, or may still be, carried out: the reply was lost.
    pub(crate) in_flight: Option<InFlight>,
}

impl Failure {
    /// A refusal: nothing was done, and asking again would not change that.
    pub(crate) fn refused(error: Error) -> Self {
        Self {
            error,
            transient: false,
            in_flight: None,
        }
    }

    /// The same, for another call that it ended.
    pub(crate) fn share(&self) -> Self {
        Self {
            error: self.error.share(),
            ..*self
        }
    }

    /// Nothing was done, but asking again may help.
    pub(crate) fn not_sent(error: Error) -> Self {
        Self {
            error,
            transient: true,
            in_flight: None,
        }
    }
}

/// Until when an attempt whose reply was lost may still be carried out by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// The connection it travelled on, if it was one only: whatever is sent there later arrives
    /// later.
    pub(crate) connection: Option<u64>,
    /// The latest moment by the server's clock, in microseconds, that the attempt carries.
    pub(crate) latest_us: u64,
}

impl InFlight {
    /// Both of two attempts.
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
