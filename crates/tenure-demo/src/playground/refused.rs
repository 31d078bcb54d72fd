//! Why the playground does not do what it was asked for.

use std::error::Error;
use std::fmt;

/// Why the playground does not do what it was asked for.
#[derive(Debug)]
pub enum Refused {
    /// The plan is out of its limits, or the store cannot sell like that.
    Invalid(String),
    /// Another run goes on: its id, if it has one by now.
    Running(Option<String>),
    /// The run does not take this any more.
    Conflict(String),
    /// The stock cannot be brought on sale.
    Store(anyhow::Error),
    /// Something that should not happen.
    Internal,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(detail) | Self::Conflict(detail) => f.write_str(detail),
            Self::Running(_) => f.write_str("one run at a time: wait until it is done, or stop it"),
            Self::Store(error) => error.fmt(f),
            Self::Internal => f.write_str("cannot begin the run"),
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
