//! What can go wrong, and what the caller can do about it.

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
/// Branch on [`kind`](Error::kind) to know what happened and on [`advice`](Error::advice) to know
/// what to do. The text is for people: lowercase, with the value in backticks, the cause and a
/// next step. It never holds a password.
///
/// ```
/// # use tenure::{Tenure, ErrorKind, Advice};
/// # use std::time::Duration;
/// # async fn example(tenure: &Tenure) -> Result<(), tenure::Error> {
/// match tenure.lock("nightly").acquire_within(Duration::from_secs(1)).await {
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

/// What happened, for a program to branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The name breaks a rule of [`LockName`].
    InvalidName,
    /// A setting is out of its limits, or two settings contradict each other.
    InvalidSetting,
    /// The URL cannot be understood.
    InvalidUrl,
    /// Another holder kept the lock for as long as the caller wanted to wait.
    Busy,
    /// The server could not be reached, or answered that it cannot serve now.
    Unavailable,
    /// The server refused the user, the password, a command, a key or a channel.
    Denied,
    /// The server is a replica and takes no writes.
    ReadOnly,
    /// The server has no memory left for a new lock.
    OutOfMemory,
    /// The server is older than Redis 7.0.
    Unsupported,
    /// Fewer replicas than asked for have confirmed the lock; it is not held. See
    /// [`Lock::replicas`](crate::Lock::replicas).
    NotReplicated,
    /// The key at the lock's name is not a lock of this layout.
    NotALock,
    /// The lease was lost.
    Lost,
    /// An owner re-entered its lock with other options than it is held with.
    Mismatch,
    /// The client was shut down.
    Closed,
    /// The server answered something that Tenure does not understand.
    Protocol,
}

/// What the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Try again, or wait: nothing is wrong, someone else was first.
    Retry,
    /// Try again later: the server needs time or an administrator.
    Later,
    /// Stop the protected work: the lock is no longer held.
    Lost,
    /// Trying again will not help: the call, the setting or the permission is wrong.
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

    /// Who held the lock, for [`ErrorKind::Busy`]. Which client that is takes a moment to find
    /// out: after a very short wait only its lease is known, and
    /// [`Lock::holder`](crate::Lock::holder) tells more.
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
        let message = format!("cannot use `{shown}` as the name of a lock: {cause}");
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

    /// The same error for one more waiter that it concerns.
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
        // What `main` prints when it returns an error: for people.
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
