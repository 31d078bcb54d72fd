//! How waiters on a Cluster are woken.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Whether waiters on a Cluster are woken by sharded messages, which only the nodes of the lock's
/// shard receive.
///
/// All clients that share a lock should use the same setting: a waiter that subscribes to the other
/// kind of message receives none, and notices a release only at its next poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharded {
    /// If the servers support it: Redis 7.0 and newer.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: every message goes to every node. For fleets in which some clients do not support
    /// sharded messages.
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

/// As in the URL: `auto`, `on` or `off`.
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
