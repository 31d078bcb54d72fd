//! How a lease shares its lock with other leases.

/// How a lease shares its lock with other leases. Waiters, guards, watchdog and records are the same
/// for every mode; the scripts of a layout differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// No other lease holds the lock at the same time.
    #[default]
    Exclusive,
}
