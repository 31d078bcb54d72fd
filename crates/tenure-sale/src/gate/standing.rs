//! What the gate knows of an item.

use crate::item::ItemState;

/// What the gate knows of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the server is the one that was loaded, so that orders may be accepted.
    pub current: bool,
    /// Whether it is on sale; `None` while it is being rebuilt.
    pub state: Option<ItemState>,
    /// Under which epoch it was loaded.
    pub epoch: u64,
    /// Units left; `None` if unlimited. Of an item that is spread: on all shelves, each looked at at
    /// another moment.
    pub left: Option<u64>,
    /// Units that one shelf gave and another may not have received. Zero unless they are just on their
    /// way, or a process died that moved them: see
    /// [`Gate::finish_moves`](crate::gate::Gate::finish_moves).
    pub moving: u64,
    /// The number of the last change that the gate applied.
    pub change: u64,
    /// Entries in the queue, those handed to consumers included.
    pub queued: u64,
    /// Units that all entries in the queue have set aside, if it was asked for.
    pub queued_units: Option<u64>,
    /// Entries handed to consumers and not acknowledged.
    pub pending: u64,
    /// Entries that were buried as dead.
    pub dead: u64,
    /// The shelves that know the item, if it is spread; none otherwise.
    pub shelves: Vec<ShelfStanding>,
}

/// What one shelf knows of an item that is spread over several.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShelfStanding {
    /// Which one, from zero on.
    pub nth: u64,
    /// Whether its server is the one that was loaded.
    pub current: bool,
    /// Whether the item is on sale here; `None` while it is being rebuilt.
    pub state: Option<ItemState>,
    /// Under which epoch it was loaded.
    pub epoch: u64,
    /// Units left here; `None` if unlimited.
    pub left: Option<u64>,
    /// Units that it gave another one, until that is concluded.
    pub moving: u64,
    /// Units that came, less those that went, less those that are left: not zero if somebody else
    /// wrote to this shelf.
    pub drift: i128,
    /// The number of the last change that it was told.
    pub change: u64,
    /// Entries in its queue, those handed to consumers included.
    pub queued: u64,
    /// Entries handed to consumers and not acknowledged.
    pub pending: u64,
    /// Entries that were buried as dead.
    pub dead: u64,
}
