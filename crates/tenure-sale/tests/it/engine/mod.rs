//! The engine: gate, queue and ledger as one thing. Table of contents:

/// A stage: a gate and a ledger of one's own, and what tests say to them.
#[macro_use]
mod stage;

/// What the gate remembers of requests.
mod answers;
/// Items that are broken beside healthy ones.
mod care;
/// Consumers that die, stop, and share the work.
mod consumers;
/// Entries that the ledger does not take.
mod dead;
/// What watchers receive.
mod events;
/// Sentinel and Cluster: servers replaced by others that know less.
mod failover;
/// The gate's server has no memory left.
mod full;
/// The gate's server restarts, with and without what it knew.
mod gate_away;
/// Items spread over the nodes of a cluster.
mod hot;
/// Ids that were never given out.
mod invented;
/// Keys of an item that are deleted, overwritten or emptied.
mod keys;
/// Payments that come late.
mod late;
/// The ledger is away.
mod ledger_away;
/// The life of an order, and of an item.
mod life;
/// Accepted orders that never reached the ledger.
mod lost;
/// Great numbers, and what counts for a buyer.
mod numbers;
/// A gate and a ledger that do not belong together.
mod pairing;
/// A gate under a prefix, and a user that may touch nothing else.
mod prefix;
/// A ledger that is put back.
mod put_back;
/// Cancelled, paid for and expired at once.
mod races;
/// Gate and ledger loaded anew.
mod rebuilding;
/// Whether all tell the same story.
mod reconciling;
/// Stock raised and lowered while it is sold.
mod restock;
/// Single commands that an ACL forbids.
mod rights;
/// Terms that change while orders are queued.
mod terms;
