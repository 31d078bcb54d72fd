//! Which bytes a lock is in Redis.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Which bytes a lock is in Redis: with whose locks ours exclude each other.
///
/// All clients that share a lock must use the same layout. A key of the other one is an error that
/// says which layout to choose, never a second lock beside it. `docs/wire-format.md` lists every byte
/// of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// The classic `name = owner, NX, PX`: with every library that does the same, such as redis-py,
    /// redsync and node-redlock. Half the server's work of the other.
    #[default]
    Native,
    /// Redisson's own bytes: with the `RLock` and `RFencedLock` of Java processes. Both wait for and
    /// wake each other, and their fences grow together.
    Redisson,
}

impl Layout {
    const ALL: [Self; 2] = [Self::Native, Self::Redisson];

    fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Redisson => "redisson",
        }
    }
}

/// As the URL says it: `native` or `redisson`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == text);
        known.ok_or_else(|| {
            Error::invalid_setting("the layout", text, "it must be `native` or `redisson`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_read_as_it_is_written() {
        for layout in Layout::ALL {
            assert_eq!(layout.to_string().parse::<Layout>().unwrap(), layout);
        }
        let error = "Redisson".parse::<Layout>().unwrap_err();
        assert!(
            error.to_string().contains("`native` or `redisson`"),
            "{error}"
        );
    }
}
