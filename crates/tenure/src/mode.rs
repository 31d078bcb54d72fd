//! How a lease shares its lock with other leases.

use std::fmt;

/// How a lease shares its lock with other leases.
///
/// Waiters, guards, watchdog and records are the same for every mode; the scripts of a layout differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// No other lease holds the lock at the same time.
    #[default]
    Exclusive,
    /// Other shared leases may hold the lock at the same time, but no exclusive one.
    Shared,
    /// The lease has permits of a [semaphore](crate::Semaphore), each in a slot of its own.
    Permit,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit => "permit",
        })
    }
}
