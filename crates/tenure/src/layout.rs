//! How a lock is encoded in Redis.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// How a lock is encoded in Redis, and so which other libraries it excludes.
///
/// All clients that share a lock must use the same layout. A key in the other layout is an error
/// that names the layout to use, never a second lock. `docs/wire-format.md` documents both layouts
/// in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// The classic `name = owner, NX, PX`. Compatible with every library that does the same, such
    /// as redis-py, redsync and node-redlock. It takes half as much server time as the other.
    #[default]
    Native,
    /// Redisson's format. Compatible with the `RLock` and `RFencedLock` of Java processes: both
    /// sides wait for and wake each other, and share one sequence of fences.
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

/// As in the URL: `native` or `redisson`.
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
