//! A fence checked by a SQL database: `UPDATE … WHERE fence <= ?`.
//!
//! Two holders write a balance. The first is paused for longer than its lease (a long garbage
//! collection, a suspended machine), so the second gets the lock and writes. Then the first wakes
//! up and writes as if nothing had happened. No lock can stop it: the row does.
//!
//! ```sh
//! cargo run -p tenure --example fence_sql
//! ```
//!
//! It prints:
//!
//! ```text
//! old holder: got the lock, read a balance of 100, and is paused
//! new holder: got the lock with a greater fence, wrote 70
//! old holder: wakes up and wants to write 90: refused, its fence is too old
//! balance: 70
//! ```
//!
//! The same statement works on PostgreSQL and MySQL. What it needs is one more column.

use std::error::Error;
use std::io::Write;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure::Fence;
use tenure::blocking::Tenure;

const LEASE: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE account (
            id      TEXT PRIMARY KEY,
            balance INTEGER NOT NULL,
            fence   INTEGER NOT NULL DEFAULT 0
        );
        INSERT INTO account (id, balance) VALUES ('alice', 100);",
    )?;
    // Two clients, as if in two processes.
    let (old, new) = (connect()?, connect()?);

    // `fixed`: this lease is not renewed, as if the whole process were paused.
    let old_guard = old
        .lock("account:alice")
        .ttl(LEASE)
        .no_renewal()
        .acquire()?;
    let old_balance = balance(&database)?;
    writeln!(
        out,
        "old holder: got the lock, read a balance of {old_balance}, and is paused"
    )?;
    thread::sleep(LEASE);

    let new_guard = new.lock("account:alice").acquire()?;
    let new_balance = balance(&database)? - 30;
    assert!(write_balance(&database, new_balance, new_guard.fence())?);
    writeln!(
        out,
        "new holder: got the lock with a greater fence, wrote {new_balance}"
    )?;
    new_guard.release()?;

    let late = old_balance - 10;
    write!(out, "old holder: wakes up and wants to write {late}: ")?;
    let outcome = if write_balance(&database, late, old_guard.fence())? {
        "written, and the new holder's update is lost"
    } else {
        "refused, its fence is too old"
    };
    writeln!(out, "{outcome}")?;
    writeln!(out, "balance: {}", balance(&database)?)?;
    Ok(())
}

/// Writes only if no greater fence was here before. The check and the write are one statement:
/// between two there would be room for another pause.
fn write_balance(database: &Connection, balance: i64, fence: Fence) -> rusqlite::Result<bool> {
    // Fences are below 2^53: they fit every database's BIGINT.
    let fence = fence.get().cast_signed();
    let changed = database.execute(
        "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 'alice' AND fence <= ?2",
        params![balance, fence],
    )?;
    Ok(changed == 1)
}

fn balance(database: &Connection) -> rusqlite::Result<i64> {
    let query = "SELECT balance FROM account WHERE id = 'alice'";
    database.query_row(query, [], |row| row.get(0))
}

fn connect() -> Result<Tenure, tenure::Error> {
    Tenure::connect("memory://fence-sql")
}
