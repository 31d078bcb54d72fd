//! The ledger in SQLite: one writer in this process and a few readers.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Sqlite, SqliteConnection, SqlitePool};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::alone::{Presence, private_file};
use crate::ledger::fault::told;
use crate::ledger::place::Place;
use crate::ledger::schema;
use crate::ledger::sql::{Param, Row, Sql, sqlite_arguments};

/// How long to wait for another process that writes to the file.
const BUSY_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait for a reader connection.
const READER_LIMIT: Duration = Duration::from_secs(5);
const READERS: u32 = 3;

/// One SQLite database.
#[derive(Clone)]
pub(super) struct SqliteBooks {
    writer: Arc<Mutex<Writer>>,
    /// `None` in memory, where the writer's connection is the database.
    readers: Option<SqlitePool>,
    presence: Option<Arc<Presence>>,
}

struct Writer {
    connection: SqliteConnection,
    /// Whether an abandoned transaction may be open.
    open: bool,
}

impl SqliteBooks {
    pub(super) async fn open(place: &Place) -> Result<Self> {
        let Place::File { path, synchronous } = place else {
            let options = SqliteConnectOptions::new()
                .in_memory(true)
                .disable_statement_logging();
            return Self::connect(place, options, None, None).await;
        };
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            && !parent.is_dir()
        {
            let message = format!(
                "cannot open the ledger `{place}`: directory `{}` does not exist: create it first",
                parent.display()
            );
            return Err(Error::new(ErrorKind::Ledger, message));
        }
        if path.is_dir() {
            let message =
                format!("cannot open the ledger `{place}`: it is a directory: name a file in it");
            return Err(Error::new(ErrorKind::Ledger, message));
        }
        // SQLite gives its other files the mode of this one. It reports what it cannot open.
        drop(private_file(path).open(path));
        let presence = Presence::shared(path)?;
        let file = SqliteConnectOptions::new().filename(path);
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(READER_LIMIT)
            .test_before_acquire(false)
            .connect_lazy_with(settings(file.clone(), *synchronous).read_only(true));
        let file = settings(file, *synchronous).create_if_missing(true);
        Self::connect(place, file, Some(readers), Some(Arc::new(presence))).await
    }

    async fn connect(
        place: &Place,
        options: SqliteConnectOptions,
        readers: Option<SqlitePool>,
        presence: Option<Arc<Presence>>,
    ) -> Result<Self> {
        let options = match readers {
            Some(_) => options.journal_mode(SqliteJournalMode::Wal),
            None => options,
        };
        let connected = options.connect().await;
        let doing = || format!("open the ledger `{place}`");
        let mut connection = connected.map_err(|error| told(&doing(), error))?;
        schema::prepare_sqlite(place, &mut connection).await?;
        let writer = Writer {
            connection,
            open: false,
        };
        Ok(Self {
            writer: Arc::new(Mutex::new(writer)),
            readers,
            presence,
        })
    }

    pub(super) fn claim_alone(&self) -> Result<()> {
        self.presence.as_ref().map_or(Ok(()), |file| file.alone())
    }

    pub(super) async fn reader(&self) -> Result<SqliteSession, sqlx::Error> {
        match &self.readers {
            Some(readers) => Ok(SqliteSession::Reader(Reader(Some(
                readers.acquire().await?,
            )))),
            None => Ok(SqliteSession::Writer(self.turn().await?)),
        }
    }

    /// The writer, in a transaction.
    pub(super) async fn begin(&self) -> Result<SqliteSession, sqlx::Error> {
        let mut turn = self.turn().await?;
        turn.begin().await?;
        Ok(SqliteSession::Writer(turn))
    }

    async fn turn(&self) -> Result<Turn, sqlx::Error> {
        let mut turn = Turn(Some(Arc::clone(&self.writer).lock_owned().await));
        turn.rollback().await?;
        Ok(turn)
    }
}

/// A connection for reading, or the writer's turn.
pub(super) enum SqliteSession {
    Reader(Reader),
    Writer(Turn),
}

impl SqliteSession {
    pub(super) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64, sqlx::Error> {
        let arguments = sqlite_arguments(params)?;
        let query = sqlx::query_with(sql.sqlite, arguments);
        Ok(query.execute(self.connection()?).await?.rows_affected())
    }

    pub(super) async fn rows(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let arguments = sqlite_arguments(params)?;
        let query = sqlx::query_with(sql.sqlite, arguments);
        let rows = query.fetch_all(self.connection()?).await?;
        Ok(rows.into_iter().map(Row::Sqlite).collect())
    }

    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Reader(_) => Ok(()),
            Self::Writer(mut turn) => turn.commit().await,
        }
    }

    pub(super) async fn rollback(self) {
        if let Self::Writer(mut turn) = self {
            // If that fails, the next turn retries it.
            let _ = turn.rollback().await;
        }
    }

    fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        match self {
            Self::Reader(reader) => reader.0.as_deref_mut().ok_or(sqlx::Error::WorkerCrashed),
            Self::Writer(turn) => Ok(&mut turn.writer()?.connection),
        }
    }
}

/// A connection for reading, returned when it is dropped, if there is a runtime to do that.
pub(super) struct Reader(Option<PoolConnection<Sqlite>>);

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take()
            && Handle::try_current().is_err()
        {
            drop(connection.detach());
        }
    }
}

/// One caller's turn with the writer.
///
/// A caller may be dropped at any await. An open transaction is then rolled back: at once if there
/// is a runtime, otherwise at the next turn.
pub(super) struct Turn(Option<OwnedMutexGuard<Writer>>);

impl Turn {
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        let writer = self.writer()?;
        writer.open = true;
        let begun = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut writer.connection);
        if let Err(error) = begun.await {
            writer.open = false;
            return Err(error);
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), sqlx::Error> {
        let writer = self.writer()?;
        sqlx::raw_sql("COMMIT")
            .execute(&mut writer.connection)
            .await?;
        writer.open = false;
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        let writer = self.writer()?;
        if !writer.open {
            return Ok(());
        }
        // Some errors have already ended the transaction: then there is nothing to roll back.
        let ended = sqlx::raw_sql("ROLLBACK")
            .execute(&mut writer.connection)
            .await;
        match ended {
            Err(error) if error.as_database_error().is_none() => Err(error),
            _ => {
                writer.open = false;
                Ok(())
            }
        }
    }

    fn writer(&mut self) -> Result<&mut Writer, sqlx::Error> {
        // It is only removed when the turn is dropped.
        self.0.as_deref_mut().ok_or(sqlx::Error::WorkerCrashed)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let left_open = self.0.take().filter(|writer| writer.open);
        if let (Some(writer), Ok(runtime)) = (left_open, Handle::try_current()) {
            runtime.spawn(async move { Turn(Some(writer)).rollback().await });
        }
    }
}

fn settings(file: SqliteConnectOptions, synchronous: SqliteSynchronous) -> SqliteConnectOptions {
    file.synchronous(synchronous)
        .busy_timeout(BUSY_LIMIT)
        .disable_statement_logging()
}
