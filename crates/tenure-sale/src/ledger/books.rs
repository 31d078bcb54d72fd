//! The books: the ledger's database, and how transactions run on it.

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::fault::{Fault, is_disconnect, silence};
use crate::ledger::place::Place;
use crate::ledger::postgres::{PostgresBooks, PostgresSession};
use crate::ledger::sql::{Param, Row, Sql};
use crate::ledger::sqlite::{SqliteBooks, SqliteSession};

/// The time limit of a transaction, including waits for a connection and for locks. Nothing else
/// notices a server that has stopped responding.
const WORK_LIMIT: Duration = Duration::from_secs(6);
/// The same for reads, some of which count all orders of an item.
const READ_LIMIT: Duration = Duration::from_secs(20);
/// How often a transaction is tried when it conflicts with others.
const TRIES: u32 = 5;
/// The pause before each retry, times its number.
const PAUSE: Duration = Duration::from_millis(5);

/// The ledger's database.
#[derive(Clone)]
pub(super) struct Books {
    place: Place,
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Sqlite(SqliteBooks),
    Postgres(PostgresBooks),
}

/// The work of one transaction. It is repeated from the start after a conflict.
pub(super) trait Work: Sync {
    /// Its result.
    type Made: Send;

    /// The text after "cannot" in errors.
    fn doing(&self) -> String;

    fn run(&self, session: &mut Session) -> impl Future<Output = Result<Self::Made, Fault>> + Send;
}

impl Books {
    pub(super) async fn open(place: Place) -> Result<Self> {
        let backend = match &place {
            Place::Postgres(options) => {
                Backend::Postgres(PostgresBooks::open(&place, options).await?)
            }
            _ => Backend::Sqlite(SqliteBooks::open(&place).await?),
        };
        Ok(Self { place, backend })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn claim_alone(&self) -> Result<()> {
        match &self.backend {
            Backend::Sqlite(books) => books.claim_alone(),
            Backend::Postgres(_) => {
                let message = format!(
                    "cannot use the ledger `{}` exclusively: other users of a PostgreSQL \
                     database cannot be detected; a gate in memory needs a ledger in SQLite",
                    self.place
                );
                Err(Error::new(ErrorKind::LedgerInUse, message))
            }
        }
    }

    /// One read.
    pub(super) async fn rows(
        &self,
        doing: &str,
        sql: Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        let asked = timeout(READ_LIMIT, self.ask(sql, params)).await;
        let asked = asked.map_err(|_| silence(doing, READ_LIMIT))?;
        asked.map_err(|error| Fault::Sql(error).told(doing))
    }

    /// One transaction.
    pub(super) async fn write<W: Work>(&self, work: &W) -> Result<W::Made> {
        let done = timeout(WORK_LIMIT, self.try_often(work)).await;
        let done = done.map_err(|_| silence(&work.doing(), WORK_LIMIT))?;
        done.map_err(|fault| fault.told(&work.doing()))
    }

    async fn ask(&self, sql: Sql, params: &[Param<'_>]) -> Result<Vec<Row>, sqlx::Error> {
        let mut tries = TRIES;
        loop {
            let mut session = self.session(Purpose::Read).await?;
            match session.rows(sql, params).await {
                Ok(rows) => {
                    session.put_back();
                    return Ok(rows);
                }
                // The connection may have died while it was idle.
                Err(error) if is_disconnect(&error) && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_often<W: Work>(&self, work: &W) -> Result<W::Made, Fault> {
        for again in 1..TRIES {
            match self.try_once(work).await {
                Err(fault) if fault.is_collision() => sleep(PAUSE * again).await,
                done => return done,
            }
        }
        self.try_once(work).await
    }

    async fn try_once<W: Work>(&self, work: &W) -> Result<W::Made, Fault> {
        let mut session = self.session(Purpose::Write).await?;
        match work.run(&mut session).await {
            Ok(made) => {
                session.commit().await?;
                Ok(made)
            }
            Err(fault) => {
                session.rollback().await;
                Err(fault)
            }
        }
    }

    async fn session(&self, purpose: Purpose) -> Result<Session, sqlx::Error> {
        Ok(match (&self.backend, purpose) {
            (Backend::Sqlite(books), Purpose::Read) => Session::Sqlite(books.reader().await?),
            (Backend::Sqlite(books), Purpose::Write) => Session::Sqlite(books.begin().await?),
            (Backend::Postgres(books), Purpose::Read) => Session::Postgres(books.reader().await?),
            (Backend::Postgres(books), Purpose::Write) => Session::Postgres(books.begin().await?),
        })
    }
}

#[derive(Clone, Copy)]
enum Purpose {
    Read,
    Write,
}

/// A connection in use, in a transaction if it writes.
pub(super) enum Session {
    Sqlite(SqliteSession),
    Postgres(PostgresSession),
}

impl Session {
    /// Runs a statement and returns how many rows it changed.
    pub(super) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(session) => session.run(sql, params).await,
            Self::Postgres(session) => session.run(sql, params).await,
        }
    }

    pub(super) async fn rows(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(session) => session.rows(sql, params).await,
            Self::Postgres(session) => session.rows(sql, params).await,
        }
    }

    async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(session) => session.commit().await,
            Self::Postgres(session) => session.commit().await,
        }
    }

    async fn rollback(self) {
        match self {
            Self::Sqlite(session) => session.rollback().await,
            Self::Postgres(session) => session.rollback().await,
        }
    }

    fn put_back(self) {
        match self {
            Self::Sqlite(session) => drop(session),
            Self::Postgres(session) => session.put_back(),
        }
    }
}
