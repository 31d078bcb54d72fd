//! All lines of a client: how callers come to stand in one, and how word reaches it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::attempt::Wish;
use super::line::Line;
use crate::core::{Client, Core};
use crate::error::Result;
use crate::guard::Guard;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Holds;

/// A caller that waits.
pub(crate) struct Waiter {
    pub(crate) client: Arc<Client>,
    pub(crate) wish: Wish,
    pub(crate) owner: Option<Arc<Holds>>,
    pub(crate) joined: Moment,
    /// Until when it wants to wait for a holder.
    pub(crate) limit: Option<Moment>,
    pub(crate) reply: oneshot::Sender<Result<Guard>>,
}

/// A waiter's place in a line. Dropping it tells the line that the caller has left.
pub(crate) struct Place {
    core: Arc<Core>,
    name: LockName,
    number: u64,
    left: bool,
}

impl Place {
    /// The caller got its answer, and the line knows.
    pub(crate) fn answered(mut self) {
        self.left = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            self.core.lines.send(&self.name, Message::Left(self.number));
        }
    }
}

/// All lines of a client, by name.
#[derive(Default)]
pub(crate) struct Lines {
    by_name: Mutex<HashMap<LockName, Entrance>>,
    /// Numbers are never used twice, not even by the next line for the same name: word that a
    /// caller left may come late.
    joined_count: AtomicU64,
}

struct Entrance {
    inbox: mpsc::UnboundedSender<Message>,
    length: Arc<AtomicUsize>,
}

/// What a line is told.
pub(super) enum Message {
    Join(u64, Waiter),
    /// The caller with this number went away.
    Left(u64),
    /// The lock was offered to this lease.
    Offered(LeaseId),
    /// The lock is free, and perhaps it is the turn of this lease.
    Opened(Option<LeaseId>),
    /// Look again: messages may have been missed.
    LookAgain,
    /// An owner got the lock by another way; its waiters share it.
    Share(Arc<Holds>),
    Close,
}

impl Lines {
    /// Puts a waiter at the end of the line for its name.
    pub(crate) fn join(&self, core: &Arc<Core>, waiter: Waiter) -> Place {
        let mut by_name = self.by_name();
        let name = waiter.wish.name.clone();
        if by_name.get(&name).is_some_and(|it| it.inbox.is_closed()) {
            // Its task failed, which must not shut the name for ever.
            by_name.remove(&name);
        }
        let entrance = by_name.entry(name.clone()).or_insert_with(|| {
            let (inbox, messages) = mpsc::unbounded_channel();
            let length = Arc::new(AtomicUsize::new(0));
            let line = Line::new(
                Arc::clone(core),
                name.clone(),
                messages,
                Arc::clone(&length),
            );
            waiter.client.engine.spawn(line.run());
            Entrance { inbox, length }
        });
        entrance.length.fetch_add(1, Ordering::Relaxed);
        let number = self.joined_count.fetch_add(1, Ordering::Relaxed);
        // The line leaves the map before it stops reading, under the same mutex.
        let _ = entrance.inbox.send(Message::Join(number, waiter));
        core.record_changed.notify_one();
        Place {
            core: Arc::clone(core),
            name,
            number,
            left: false,
        }
    }

    pub(crate) fn wake(&self, name: &LockName, offered_to: LeaseId) {
        self.send(name, Message::Offered(offered_to));
    }

    pub(crate) fn opened(&self, name: &LockName, next: Option<LeaseId>) {
        self.send(name, Message::Opened(next));
    }

    /// The waiters of an owner who just got the lock have it too.
    pub(crate) fn share(&self, name: &LockName, owner: &Arc<Holds>) {
        self.send(name, Message::Share(Arc::clone(owner)));
    }

    pub(crate) fn wake_all(&self) {
        for entrance in self.by_name().values() {
            let _ = entrance.inbox.send(Message::LookAgain);
        }
    }

    pub(crate) fn close_all(&self) {
        for entrance in self.by_name().values() {
            let _ = entrance.inbox.send(Message::Close);
        }
    }

    /// How many callers wait, by name.
    pub(crate) fn lengths(&self) -> Vec<(LockName, usize)> {
        let lengths = |(name, entrance): (&LockName, &Entrance)| {
            (name.clone(), entrance.length.load(Ordering::Relaxed))
        };
        self.by_name().iter().map(lengths).collect()
    }

    /// Takes a line away, unless somebody has joined it meanwhile.
    pub(super) fn close(&self, name: &LockName, inbox: &mpsc::UnboundedReceiver<Message>) -> bool {
        let mut by_name = self.by_name();
        let empty = inbox.is_empty();
        if empty {
            by_name.remove(name);
        }
        empty
    }

    fn send(&self, name: &LockName, message: Message) {
        if let Some(entrance) = self.by_name().get(name) {
            let _ = entrance.inbox.send(message);
        }
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<LockName, Entrance>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
