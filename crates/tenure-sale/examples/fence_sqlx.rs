//! A fence checked by a database through sqlx: a guarded `UPDATE`, and a helper for any statement.
//!
//! Two holders write a balance. The lease of the first ends while it still works, so the second gets
//! the lock and writes. Then the first writes as if nothing had happened, and the row refuses it.
//!
//! ```sh
//! cargo run -p tenure-sale --example fence_sqlx
//! ```
//!
//! It prints:
//!
//! ```text
//! old holder: read a balance of 100
//! new holder: wrote 70
//! old holder: wants to write 90: refused, a newer holder was here
//! balance: 70
//! ```
//!
//! The same works on PostgreSQL, with `$1` in place of `?1`.

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::time::Duration;

use sqlx::sqlite::{SqliteArguments, SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, SqliteExecutor};
use tenure::{Fence, Tenure};

const LEASE: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let database = database().await?;
    let (old, new) = (connect().await?, connect().await?);

    // Not renewed, as if the whole process were paused.
    let lock = old.lock("account:alice").ttl(LEASE).no_renewal();
    let old_guard = lock.acquire().await?;
    let old_balance = balance(&database).await?;
    writeln!(out, "old holder: read a balance of {old_balance}")?;
    old_guard.lost().await;

    let lock = new.lock("account:alice");
    let written = lock.try_with(async |guard| {
        let balance = balance(&database).await? - 30;
        write_balance(&database, balance, guard.fence()).await?;
        Ok::<_, Box<dyn Error>>(balance)
    });
    writeln!(out, "new holder: wrote {}", written.await?)?;

    let late = old_balance - 10;
    write!(out, "old holder: wants to write {late}: ")?;
    match write_balance(&database, late, old_guard.fence()).await {
        Ok(()) => writeln!(out, "written, and the new holder's update is lost")?,
        Err(refused) => writeln!(out, "{refused}")?,
    }
    writeln!(out, "balance: {}", balance(&database).await?)?;
    Ok(())
}

async fn write_balance(database: &SqlitePool, balance: i64, fence: Fence) -> Result<(), Refused> {
    // The check and the write are one statement: between two there would be room for a pause.
    let update = sqlx::query(
        "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 'alice' AND fence <= ?2",
    );
    let update = update.bind(balance).bind(number(fence));
    execute_fenced(database, update).await
}

/// Why a write was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The row has a greater fence, or does not exist.
    Stale,
    Database(sqlx::Error),
}

/// Runs a statement that changes one row if it has no greater fence.
pub(crate) async fn execute_fenced<'q>(
    database: impl SqliteExecutor<'_>,
    guarded: sqlx::query::Query<'q, Sqlite, SqliteArguments>,
) -> Result<(), Refused> {
    let done = guarded.execute(database).await.map_err(Refused::Database)?;
    match done.rows_affected() {
        0 => Err(Refused::Stale),
        _ => Ok(()),
    }
}

/// A fence as a `BIGINT`: fences are below 2^53.
pub(crate) fn number(fence: Fence) -> i64 {
    fence.get().cast_signed()
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("refused, a newer holder was here"),
            Self::Database(error) => write!(f, "the database failed: {error}"),
        }
    }
}

impl Error for Refused {}

async fn database() -> Result<SqlitePool, sqlx::Error> {
    // One connection: each would have a database in memory of its own.
    let pool = SqlitePoolOptions::new().max_connections(1);
    let database = pool.connect("sqlite::memory:").await?;
    for statement in [
        "CREATE TABLE account (
            id      TEXT PRIMARY KEY,
            balance INTEGER NOT NULL,
            fence   INTEGER NOT NULL DEFAULT 0
        )",
        "INSERT INTO account (id, balance) VALUES ('alice', 100)",
    ] {
        sqlx::query(statement).execute(&database).await?;
    }
    Ok(database)
}

async fn balance(database: &SqlitePool) -> Result<i64, sqlx::Error> {
    let query = "SELECT balance FROM account WHERE id = 'alice'";
    sqlx::query_scalar(query).fetch_one(database).await
}

async fn connect() -> Result<Tenure, tenure::Error> {
    Tenure::connect("memory://fence-sqlx").await
}
