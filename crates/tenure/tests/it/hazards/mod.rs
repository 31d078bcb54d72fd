//! One test for each hazard that exists on one node. The number in a test's name is the hazard's.

/// Drops, renewals, reentrancy.
mod lifecycle;
/// Lost replies, retries, cancellation.
mod replies;
/// Scripts, types, names, states of the server.
mod server;
/// Clocks, pauses, leases that end.
mod time;
/// Messages, herds, dead holders.
mod waiting;
