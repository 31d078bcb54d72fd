//! One binary for all integration tests of the sale. Table of contents:

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

/// A stock that somebody else wrote to, and a server that is gone.
mod foreign;
/// What a gate promises, in memory and on every kind of Redis.
mod gate;
/// What a stock promises, in memory and on a real Redis.
mod stock;
