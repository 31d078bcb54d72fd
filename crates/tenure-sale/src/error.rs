//! What can go wrong with a sale.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Branch on [`kind`](Error::kind); the text is for people.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What happened, for a program to branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The item's name cannot be part of a key.
    InvalidItem,
    /// The name of a buyer is empty, too long, or holds control characters.
    InvalidBuyer,
    /// The id of a request is empty, too long, or holds control characters.
    InvalidRequest,
    /// What claims to be the id of an order is none.
    InvalidOrder,
    /// A setting of an item or of the sale contradicts another, or is out of bounds.
    InvalidSetting,
    /// A number of units is beyond [`UNITS_MAX`](crate::UNITS_MAX).
    InvalidUnits,
    /// The URL cannot be understood.
    InvalidUrl,
    /// The item was never loaded. That is not the same as sold out.
    NotLoaded,
    /// The item was loaded before, and its stock is not overwritten.
    AlreadyLoaded,
    /// There is no such item in the ledger.
    NoItem,
    /// There is no such order.
    NoOrder,
    /// There is an item of that name already.
    ItemExists,
    /// What the caller expected is no longer so: compare-and-set failed, or the state of an item or
    /// order does not allow the change. Look again and decide anew.
    Conflict,
    /// The gate does not know the item as the ledger does, and was not rebuilt in time.
    Stale,
    /// The ledger is of a newer version than this program, or is used by another process.
    LedgerInUse,
    /// The ledger failed or is gone. Orders stay in the stream.
    Ledger,
    /// The ledger refuses this user, this password, or what it was asked for.
    LedgerDenied,
    /// The store failed; the [source](std::error::Error::source) is a [`tenure::Error`].
    Store,
    /// The store holds or answers something that is no stock.
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

    /// The store's error, with what was wanted of it.
    pub(crate) fn store(wanted: impl Into<String>, source: tenure::Error) -> Self {
        let kind = match source.kind() {
            tenure::ErrorKind::InvalidUrl => ErrorKind::InvalidUrl,
            _ => ErrorKind::Store,
        };
        let mut error = Self::new(kind, wanted);
        error.0.source = Some(Arc::new(source));
        error
    }

    /// With the error that it comes from.
    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// The same failure, for somebody else whom it hit too.
    pub(crate) fn shared(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind,
            message: self.0.message.clone(),
            source: self.0.source.clone(),
        }))
    }

    /// The same failure under another sentence.
    pub(crate) fn saying(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    pub(crate) fn not_loaded(item: &str) -> Self {
        let message = format!("item `{item}` was never loaded: load its units first");
        Self::new(ErrorKind::NotLoaded, message)
    }

    pub(crate) fn already_loaded(item: &str) -> Self {
        let message = format!("item `{item}` is loaded already: change its units with `set`");
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
