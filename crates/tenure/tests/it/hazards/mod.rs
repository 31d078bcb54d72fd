//! One test for each hazard that exists on one node. The number in a test's name is the hazard's.

/// Drops, renewals, reentrancy.
mod lifecycle;
/// Leases that change their mode.
mod mode_change;
/// A client in a process of its own, to be paused.
pub mod program;
/// Lost replies, retries, cancellation.
mod replies;
/// Scripts, types, names, states of the server.
mod server;
/// Clocks, pauses, leases that end.
mod time;
/// Messages, herds, dead holders.
mod waiting;
/// A server behind a proxy, where the faults are.
pub mod wire;
