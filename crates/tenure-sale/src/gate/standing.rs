//! The gate's state of an item.

use crate::item::ItemState;

/// The gate's state of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether the server is the one that was loaded and has all keys of the item, so that orders
    /// may be accepted.
    pub current: bool,
    /// The state of the item; `None` while it is being rebuilt.
    pub state: Option<ItemState>,
    /// The epoch of the load; zero if it cannot be read.
    pub epoch: u64,
    /// Units left; `None` if unlimited. For a spread item: on all shelves, each read at a different
    /// moment.
    pub left: Option<u64>,
    /// Units that one shelf gave and another may not have received. Zero unless a move is in
    /// progress or the process that moved them died: see
    /// [`Gate::finish_moves`](crate::gate::Gate::finish_moves).
    pub moving: u64,
    /// The number of the last change that the gate applied.
    pub change: u64,
    /// Entries in the queue, including those delivered to consumers.
    pub queued: u64,
    /// Units reserved by all entries in the queue, if requested.
    pub queued_units: Option<u64>,
    /// Entries delivered to consumers and not acknowledged.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
    /// The shelves that know the item, if it is spread; empty otherwise.
    pub shelves: Vec<ShelfStanding>,
    /// Keys of the item that hold something else than what the gate writes there. A rebuild deletes
    /// them.
    pub foreign: Vec<String>,
    /// Whether it was stopped because the ledger knows less than it does.
    pub(crate) stopped: bool,
    /// The ends of the queue on each shelf.
    pub(crate) queues: Vec<Ends>,
}

impl Standing {
    /// The newest epoch of an entry that was ever queued.
    pub(crate) fn newest_in_queue(&self) -> u64 {
        let newest = self.queues.iter().filter_map(|ends| ends.newest);
        newest.map(|(epoch, _)| epoch).max().unwrap_or_default()
    }
}

/// The ends of a queue: epoch and place of its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The newest entry that it was ever given.
    pub(crate) newest: Option<(u64, u64)>,
    /// The oldest entry that it has.
    pub(crate) oldest: Option<(u64, u64)>,
}

impl Ends {
    /// How many entries of an epoch it was given.
    pub(crate) fn given(&self, epoch: u64) -> u64 {
        match self.newest {
            Some((of, place)) if of == epoch => place + 1,
            _ => 0,
        }
    }

    /// All entries of an epoch before this one were settled: it no longer has them.
    pub(crate) fn settled(&self, epoch: u64) -> u64 {
        match self.oldest {
            None => self.given(epoch),
            Some((of, place)) if of == epoch => place,
            Some(_) => 0,
        }
    }
}

/// What a gate that sells knows of an order that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// It never gave it out.
    Never,
    /// It was deleted from the queue, but a consumer has read it before.
    Held,
    /// It gave it out. If the ledger does not have it, it was deleted from the queue.
    Gone,
}

/// The state of one shelf of a spread item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShelfStanding {
    /// Its index, starting at zero.
    pub nth: u64,
    /// Whether its server is the one that was loaded, and has all its keys.
    pub current: bool,
    /// The state of the item here; `None` while it is being rebuilt.
    pub state: Option<ItemState>,
    /// The epoch of the load.
    pub epoch: u64,
    /// Units left here; `None` if unlimited.
    pub left: Option<u64>,
    /// Units that it gave to another shelf, until the move is concluded.
    pub moving: u64,
    /// Units that arrived, minus those that left, minus those that are left: nonzero if something
    /// else wrote to this shelf.
    pub drift: i128,
    /// The number of the last change that it applied.
    pub change: u64,
    /// Entries in its queue, including those delivered to consumers.
    pub queued: u64,
    /// Entries delivered to consumers and not acknowledged.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
}
