//! Drops, renewals, reentrancy.
