//! Errors: what went wrong, and what the caller can do about it.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::holder::Holder;
use crate::name::LockName;
use crate::standing::LostReason;

/// A result with Tenure's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// Match on [`kind`](Error::kind) to see what happened and on [`advice`](Error::advice) to see what
/// to do. The message is for people: lowercase, with the value in backticks, the cause and a next
/// step. It never contains a password.
///
/// ```
/// # use tenure::{Tenure, ErrorKind, Advice};
/// # use std::time::Duration;
/// # async fn example(tenure: &Tenure) -> Result<(), tenure::Error> {
/// match tenure.lock("nightly").wait(Duration::from_secs(1)).acquire().await {
///     Ok(guard) => { guard.release().await?; }
///     Err(error) if error.kind() == ErrorKind::Busy => eprintln!("skipped: {error}"),
///     Err(error) if error.advice() == Advice::Later => eprintln!("will try again: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    holder: Option<Holder>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What happened, for a program to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock name breaks a rule of [`LockName`].
    InvalidName,
    /// A setting is out of range, or two settings contradict each other.
    InvalidSetting,
    /// The URL is invalid.
    InvalidUrl,
    /// Another holder kept the lock for the whole wait.
    Busy,
    /// The server could not be reached, or reported that it cannot serve requests now.
    Unavailable,
    /// The server refused the user, the password, a command, a key or a channel.
    Denied,
    /// The server is a replica and does not accept writes.
    ReadOnly,
    /// The server has no memory left for a new lock.
    OutOfMemory,
    /// The server is older than Redis 7.0.
    Unsupported,
    /// Fewer replicas than required acknowledged the lock; it is not held. See
    /// [`Lock::replicas`](crate::Lock::replicas).
    NotReplicated,
    /// The key with the lock's name is not a lock in this layout.
    NotALock,
    /// The lease was lost.
    Lost,
    /// An owner re-entered its lock with options that differ from those it is held with.
    Mismatch,
    /// The client was shut down.
    Closed,
    /// The server sent a reply that Tenure does not understand.
    Protocol,
}

/// What the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Try again, or wait: nothing is wrong, another holder was first.
    Retry,
    /// Try again later: the server needs time or an administrator.
    Later,
    /// Stop the protected work: the lock is no longer held.
    Lost,
    /// Retrying will not help: the call, a setting or a permission is wrong.
    Fatal,
}

impl Error {
    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What to do about it.
    pub fn advice(&self) -> Advice {
        match self.kind() {
            ErrorKind::Busy => Advice::Retry,
            ErrorKind::Unavailable
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfMemory
            | ErrorKind::NotReplicated => Advice::Later,
            ErrorKind::Lost => Advice::Lost,
            ErrorKind::InvalidName
            | ErrorKind::InvalidSetting
            | ErrorKind::InvalidUrl
            | ErrorKind::Denied
            | ErrorKind::Unsupported
            | ErrorKind::NotALock
            | ErrorKind::Mismatch
            | ErrorKind::Closed
            | ErrorKind::Protocol => Advice::Fatal,
        }
    }

    /// The holder of the lock, for [`ErrorKind::Busy`]. Finding the holder's client takes a moment:
    /// after a very short wait only its lease is known. [`Lock::holder`](crate::Lock::holder)
    /// returns more.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            holder: None,
            source: None,
        }))
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn invalid_name(name: &str, cause: &str) -> Self {
        let shown: String = name.chars().take(64).collect();
        let message = format!("invalid lock name `{shown}`: {cause}");
        Self::new(ErrorKind::InvalidName, message)
    }

    pub(crate) fn invalid_setting(setting: &str, value: impl fmt::Display, cause: &str) -> Self {
        let message = format!("cannot use `{value}` as {setting}: {cause}");
        Self::new(ErrorKind::InvalidSetting, message)
    }

    pub(crate) fn busy(name: &LockName, waited: Duration, holder: Option<Holder>) -> Self {
        let by = holder.as_ref().map_or_else(
            || "other waiters were first".to_owned(),
            |holder| format!("it is held by {holder}"),
        );
        let mut error = Self::new(
            ErrorKind::Busy,
            format!("lock `{name}` was not free within {waited:.0?}: {by}"),
        );
        error.0.holder = holder;
        error
    }

    pub(crate) fn lost(name: &LockName, reason: LostReason) -> Self {
        Self::new(
            ErrorKind::Lost,
            format!("lock `{name}` is no longer held: {reason}"),
        )
    }

    pub(crate) fn closed() -> Self {
        Self::new(
            ErrorKind::Closed,
            "this client was shut down: connect a new one",
        )
    }

    /// The same error for another waiter that it applies to.
    pub(crate) fn share(&self) -> Self {
        let shared = Self::new(self.kind(), self.to_string());
        match &self.0.source {
            Some(source) => shared.caused_by(source.to_string()),
            None => shared,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f
                .debug_struct("Error")
                .field("kind", &self.0.kind)
                .field("message", &self.0.message)
                .field("source", &self.0.source)
                .finish();
        }
        // `main` prints this when it returns an error, so it is written for people.
        write!(f, "{self}")?;
        match &self.0.source {
            Some(source) => write!(f, "\nCaused by: {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
