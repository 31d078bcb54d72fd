//! What a ledger promises, on a SQLite file, in SQLite's memory and on PostgreSQL.

/// Entries of the queue, and what becomes of each.
mod commit;
mod setup;
