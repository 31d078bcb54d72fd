//! The ledger in PostgreSQL.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres};
use tokio::time::timeout;
use tracing::warn;

use crate::error::Result;
use crate::ledger::fault::{is_disconnect, silence, told};
use crate::ledger::place::Place;
use crate::ledger::schema;
use crate::ledger::sql::{Param, Row, Sql, postgres_arguments};

/// A hot item is one row: more connections would only wait for it.
const CONNECTIONS: u32 = 8;
/// How long to wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// How long to wait for the tables, which another process may be creating.
const PREPARE_LIMIT: Duration = Duration::from_secs(30);

/// What an item's row says under its lock must be what the last transaction wrote, whatever the
/// database or the user has as the default.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
/// Set by statements: `PgBouncer` refuses connections that ask for settings when they begin.
///
/// - The server gives up slightly before we do, so that it does not work in vain.
/// - A client that was stopped in the middle must not block an item.
/// - A plan made while a table was empty would read all of it when it is large.
/// - Pages come in the order of an index. Without statistics the planner would rather collect all
///   that is left and sort it, for each page again.
const SETTINGS: &str = "SET statement_timeout = '20s'; SET lock_timeout = '4s'; \
                        SET idle_in_transaction_session_timeout = '10s'; \
                        SET plan_cache_mode = 'force_custom_plan'; SET enable_bitmapscan = off";
/// A confirmed order must survive a crash. A setting that waits for standbys is left as it is.
const KEEP_COMMITS: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                            WHERE current_setting('synchronous_commit') = 'off'";
/// Settings of the whole server that nobody else can change, and that a crash must find on.
const RISKS: &str = "SELECT name FROM pg_settings \
                     WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";

/// One database.
#[derive(Clone)]
pub(super) struct PostgresBooks {
    pool: PgPool,
}

impl PostgresBooks {
    pub(super) async fn open(place: &Place, options: &PgConnectOptions) -> Result<Self> {
        let options = settings(options);
        let doing = format!("open the ledger `{place}`");
        // Not through the pool: it would retry for long, and not report why.
        let connected = timeout(CONNECT_LIMIT, options.connect()).await;
        let connected = connected.map_err(|_| silence(&doing, CONNECT_LIMIT))?;
        let mut connection = connected.map_err(|error| told(&doing, error))?;
        let set = timeout(CONNECT_LIMIT, begin_session(&mut connection)).await;
        let set = set.map_err(|_| silence(&doing, CONNECT_LIMIT))?;
        set.map_err(|error| told(&doing, error))?;
        let prepared = schema::prepare_postgres(place, &mut connection);
        let prepared = timeout(PREPARE_LIMIT, prepared).await;
        prepared.map_err(|_| silence(&doing, PREPARE_LIMIT))??;
        warn_of_risks(place, &mut connection).await;
        // No need to wait for a clean close.
        let _ = timeout(CONNECT_LIMIT, connection.close()).await;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_LIMIT)
            // A check before each use costs a round trip; `begin` notices by itself.
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(begin_session(connection)))
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    pub(super) async fn reader(&self) -> Result<PostgresSession, sqlx::Error> {
        Ok(PostgresSession(Some(self.pool.acquire().await?)))
    }

    /// A connection in a transaction. Connections that died while idle are replaced.
    pub(super) async fn begin(&self) -> Result<PostgresSession, sqlx::Error> {
        let mut tries = CONNECTIONS;
        loop {
            let mut session = self.reader().await?;
            let begun = sqlx::raw_sql(BEGIN).execute(session.connection()?).await;
            match begun {
                Ok(_) => return Ok(session),
                Err(error) if is_disconnect(&error) && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// A connection in use. If it is not returned after its work, it is closed, because it may be in
/// the middle of something or wait for a server that never responds.
pub(super) struct PostgresSession(Option<PoolConnection<Postgres>>);

impl PostgresSession {
    pub(super) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64, sqlx::Error> {
        let arguments = postgres_arguments(params)?;
        let query = sqlx::query_with(sql.postgres, arguments);
        Ok(query.execute(self.connection()?).await?.rows_affected())
    }

    pub(super) async fn rows(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let arguments = postgres_arguments(params)?;
        let query = sqlx::query_with(sql.postgres, arguments);
        let rows = query.fetch_all(self.connection()?).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("COMMIT").execute(self.connection()?).await?;
        self.put_back();
        Ok(())
    }

    pub(super) async fn rollback(mut self) {
        let Ok(connection) = self.connection() else {
            return;
        };
        if sqlx::raw_sql("ROLLBACK").execute(connection).await.is_ok() {
            self.put_back();
        }
    }

    /// Its work is done and its reply was read: it can be reused.
    pub(super) fn put_back(mut self) {
        drop(self.0.take());
    }

    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        // It is only removed at the end.
        self.0.as_deref_mut().ok_or(sqlx::Error::WorkerCrashed)
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

async fn begin_session(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SETTINGS).execute(&mut *connection).await?;
    sqlx::raw_sql(KEEP_COMMITS).execute(connection).await?;
    Ok(())
}

/// The ledger works without them, until the server's machine crashes.
async fn warn_of_risks(place: &Place, connection: &mut PgConnection) {
    let risks = sqlx::query_scalar::<_, String>(RISKS).fetch_all(connection);
    // Whoever may not ask still sells.
    let Ok(Ok(risks)) = timeout(CONNECT_LIMIT, risks).await else {
        return;
    };
    for setting in risks {
        warn!(
            ledger = %place, setting,
            "ledger.may_forget: the server has this off, so a crash of its machine may lose \
             confirmed orders: turn it on"
        );
    }
}

fn settings(options: &PgConnectOptions) -> PgConnectOptions {
    let options = match options.get_application_name() {
        Some(_) => options.clone(),
        None => options.clone().application_name("tenure-sale"),
    };
    // A number of digits in the startup packet is refused by PgBouncer, and floats are not used.
    options.disable_statement_logging().extra_float_digits(None)
}
