//! What a ledger promises, on a SQLite file, in SQLite's memory and on PostgreSQL.

/// Whether the books agree with themselves, and which entries they lack.
mod audit;
/// Looking into the database itself, past the ledger.
mod books;
/// Entries of the queue, and what becomes of each.
mod commit;
/// Epochs: what a gate is loaded with, and who may load it.
mod epochs;
/// Where a ledger is, who else uses it, of which version it is.
mod opening;
/// What is particular to PostgreSQL.
mod postgres;
/// Random operations against a small model.
mod random;
mod setup;
/// Changes of state, of orders and of items.
mod states;
/// Many at once: nothing twice, nothing lost, no number left out.
mod together;
/// A database that is gone, slow or locked.
mod trouble;
