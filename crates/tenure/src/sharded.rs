//! How the waiters of a Cluster are woken.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Whether the waiters of a Cluster are woken by sharded messages, which only the nodes of the
/// lock's own shard carry.
///
/// All clients that share a lock should use the same way: a waiter that listens for the other kind
/// of message hears nothing, and notices a release only when it looks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharded {
    /// Where the servers can: Redis 7.0 and newer.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: every message goes to every node. For fleets in which some clients know no sharded
    /// messages.
    Off,
}

impl Sharded {
    const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// As the URL says it: `auto`, `on` or `off`.
impl fmt::Display for Sharded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Sharded {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == text);
        known.ok_or_else(|| {
            Error::invalid_setting("sharded", text, "it must be `auto`, `on` or `off`")
        })
    }
}
