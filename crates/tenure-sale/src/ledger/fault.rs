//! Database errors, and how they are reported.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// Why a transaction failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The database failed or refused.
    Sql(sqlx::Error),
    /// The work itself was refused; nothing is written.
    Refused(Error),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Fault {
    /// Two transactions conflicted: nothing was done, and a retry may succeed.
    pub(super) fn is_collision(&self) -> bool {
        matches!(self, Self::Sql(error) if matches!(code(error).as_deref(), Some("40001" | "40P01")))
    }

    pub(super) fn told(self, doing: &str) -> Error {
        match self {
            Self::Sql(error) => told(doing, error),
            Self::Refused(error) => error,
        }
    }
}

/// The connection is gone; the next caller gets another one.
pub(super) fn is_disconnect(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) => true,
        // The server is stopping, crashed, or is starting.
        sqlx::Error::Database(_) => {
            matches!(code(error).as_deref(), Some("57P01" | "57P02" | "57P03"))
        }
        _ => false,
    }
}

/// A database error with the operation that failed. The original error is the source.
pub(super) fn told(doing: &str, error: sqlx::Error) -> Error {
    let cause = match &error {
        sqlx::Error::PoolTimedOut => {
            "no connection in time: is the server running, and not overloaded?"
        }
        sqlx::Error::Database(_) => match code(&error).as_deref() {
            // SQLITE_BUSY and SQLITE_BUSY_SNAPSHOT.
            Some("5" | "517") => "another process keeps writing to the file: try again",
            // SQLITE_FULL and disk_full.
            Some("13" | "53100") => "the disk is full: make room",
            // SQLITE_CORRUPT and SQLITE_NOTADB.
            Some("11" | "26") => {
                "the file is not a database, or is damaged: restore it from a backup"
            }
            Some("8" | "1032" | "14") => {
                "the file cannot be opened or written: check its permissions"
            }
            Some("28P01" | "28000") => "the server refuses this user and password: check the URL",
            Some("42501") => "this user lacks a permission: grant it",
            Some("3D000") => "the server has no such database: create it first",
            Some("57014") => "the database took too long: try again",
            Some("55P03") => "the item is locked by another transaction: try again",
            _ => "the database refuses",
        },
        _ if is_disconnect(&error) => "the connection failed: try again",
        _ => "unexpected reply from the database",
    };
    let kind = match code(&error).as_deref() {
        Some("28P01" | "28000" | "42501") => ErrorKind::LedgerDenied,
        _ => ErrorKind::Ledger,
    };
    Error::new(kind, format!("cannot {doing}: {cause}")).with_source(error)
}

/// Whether there was a conflict: nothing was done, and the work itself is not at fault.
pub(crate) fn was_kept_waiting(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    match source.and_then(|source| source.downcast_ref::<sqlx::Error>()) {
        Some(sqlx::Error::PoolTimedOut) => true,
        // lock_not_available.
        Some(error) => code(error).as_deref() == Some("55P03"),
        None => false,
    }
}

/// No reply.
pub(super) fn silence(doing: &str, waited: Duration) -> Error {
    let message =
        format!("cannot {doing}: no reply within {waited:?}; the outcome is unknown: try again");
    Error::new(ErrorKind::Ledger, message)
}

fn code(error: &sqlx::Error) -> Option<String> {
    let database = error.as_database_error()?;
    database.code().map(std::borrow::Cow::into_owned)
}
