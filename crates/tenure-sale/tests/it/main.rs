//! One binary for all integration tests of the sale. Table of contents:

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

/// The engine: gate, queue and ledger as one thing, with real servers that fail.
mod engine;
/// The examples.
mod examples;
/// A stock that another program wrote to, and a server that is gone.
mod foreign;
/// What a gate promises, in memory and on every kind of Redis.
mod gate;
/// What a ledger promises, in SQLite and PostgreSQL.
mod ledger;
/// What a stock promises, in memory and on a real Redis.
mod stock;
