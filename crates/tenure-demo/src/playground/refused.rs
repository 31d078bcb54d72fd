//! Why the playground refuses a request.

use std::error::Error;
use std::fmt;

/// Why the playground refuses a request.
#[derive(Debug)]
pub enum Refused {
    /// A setting is out of range, or the store does not support the mode.
    Invalid(String),
    /// Another run is in progress: its id, if known.
    Running(Option<String>),
    /// The run no longer accepts this.
    Conflict(String),
    /// The stock cannot be put on sale.
    Store(anyhow::Error),
    /// Internal error.
    Internal,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(detail) | Self::Conflict(detail) => f.write_str(detail),
            Self::Running(_) => f.write_str("another run is in progress: wait for it, or stop it"),
            Self::Store(error) => error.fmt(f),
            Self::Internal => f.write_str("cannot start the run"),
        }
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => error.chain().nth(1),
            _ => None,
        }
    }
}
