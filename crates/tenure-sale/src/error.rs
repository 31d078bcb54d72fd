//! Errors of a sale.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Match on [`kind`](Error::kind); the message is for people.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What happened, for a program to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The item's name cannot be part of a key.
    InvalidItem,
    /// The buyer's name is empty, too long, or contains control characters.
    InvalidBuyer,
    /// The request id is empty, too long, or contains control characters.
    InvalidRequest,
    /// The order id is invalid.
    InvalidOrder,
    /// A setting of an item or of the sale contradicts another, or is out of range.
    InvalidSetting,
    /// A number of units is greater than [`UNITS_MAX`](crate::UNITS_MAX).
    InvalidUnits,
    /// The URL is invalid.
    InvalidUrl,
    /// The item was never loaded. This is not the same as sold out.
    NotLoaded,
    /// The item was already loaded, and its stock is not overwritten.
    AlreadyLoaded,
    /// The item is not in the ledger.
    NoItem,
    /// The order does not exist.
    NoOrder,
    /// An item with that name already exists.
    ItemExists,
    /// The caller's expectation no longer holds: a compare-and-set failed, or the state of an item
    /// or order does not allow the change. Read it again and decide again.
    Conflict,
    /// The gate does not match the ledger, and was not rebuilt in time.
    Stale,
    /// The ledger has a newer version than this program, or is used by another process.
    LedgerInUse,
    /// The ledger failed or is unavailable. Orders stay in the queue.
    Ledger,
    /// The ledger refuses this user, this password, or the operation.
    LedgerDenied,
    /// The store failed; the [source](std::error::Error::source) is a [`tenure::Error`].
    Store,
    /// The store contains or returned something that is not a stock.
    Protocol,
}

impl Error {
    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// The store's error, with the operation that failed.
    pub(crate) fn store(wanted: impl Into<String>, source: tenure::Error) -> Self {
        let kind = match source.kind() {
            tenure::ErrorKind::InvalidUrl => ErrorKind::InvalidUrl,
            _ => ErrorKind::Store,
        };
        let mut error = Self::new(kind, wanted);
        error.0.source = Some(Arc::new(source));
        error
    }

    /// Adds the underlying error.
    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// The same failure, for another caller that it affects.
    pub(crate) fn shared(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind,
            message: self.0.message.clone(),
            source: self.0.source.clone(),
        }))
    }

    /// The same failure with another message.
    pub(crate) fn saying(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    pub(crate) fn not_loaded(item: &str) -> Self {
        let message = format!("item `{item}` was never loaded: load its units first");
        Self::new(ErrorKind::NotLoaded, message)
    }

    pub(crate) fn already_loaded(item: &str) -> Self {
        let message = format!("item `{item}` is already loaded: change its units with `set`");
        Self::new(ErrorKind::AlreadyLoaded, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}
