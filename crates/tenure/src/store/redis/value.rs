//! Replies of a Redis server, in our own types.

use std::fmt;

use crate::error::{Error, ErrorKind};

/// A reply of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    Nil,
    /// An integer, or a boolean as 0 or 1.
    Int(i64),
    /// Bytes: strings of any kind, and floating-point numbers as text.
    Bytes(Vec<u8>),
    /// Several values; maps are flattened: key, value, key, value.
    Array(Vec<Value>),
    /// An error inside an array or a pipeline.
    Error(String),
    /// The command waits for `EXEC`.
    Queued,
}

impl Value {
    /// The integer, even if it came as text.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bytes(_) => self.as_str()?.parse().ok(),
            _ => None,
        }
    }

    /// The text, if the value is bytes in UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The values of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }

    /// The reply to `TIME` in microseconds.
    pub(crate) fn as_server_time_us(&self) -> Option<u64> {
        let [seconds, micros] = self.as_array()? else {
            return None;
        };
        let part = |value: &Self| u64::try_from(value.as_int()?).ok();
        part(seconds)?
            .checked_mul(1_000_000)?
            .checked_add(part(micros)?)
    }

    /// Whether the value is nil.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// The error that it is or contains.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Error(error) => Some(error),
            Self::Array(values) => values.iter().find_map(Self::error),
            _ => None,
        }
    }

    /// Bytes as text, even if invalid: another library may write anything at a lock's name.
    pub(super) fn lossy(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The error for a reply that the script does not document.
    pub(super) fn unexpected(&self, from: &str) -> Error {
        Error::new(
            ErrorKind::Protocol,
            format!("unexpected reply `{self}` to {from}"),
        )
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Error(error) => write!(f, "error: {error}"),
            Self::Queued => f.write_str("queued"),
            Self::Array(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("]")
            }
        }
    }
}
