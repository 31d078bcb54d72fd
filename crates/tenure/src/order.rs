//! Whether a store keeps one queue for all waiters, as a type: what needs an order compiles only there.

/// Locks of a client whose store has one queue for all that wait: a [`Tenure`](crate::Tenure).
#[derive(Clone, Copy, Debug)]
pub enum Ordered {}

/// Locks of a client whose servers may have a queue each, so that nobody knows who is next: a
/// [`Redlock`](crate::Redlock), or [`Locks`](crate::Locks), which may be one.
#[derive(Clone, Copy, Debug)]
pub enum Unordered {}
