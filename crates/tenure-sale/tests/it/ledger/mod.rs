//! What a ledger promises, on a SQLite file, in SQLite's memory and on PostgreSQL.

/// Entries of the queue, and what becomes of each.
mod commit;
/// Epochs: what a gate is loaded with, and who may load it.
mod epochs;
mod setup;
/// Changes of state, of orders and of items.
mod states;
