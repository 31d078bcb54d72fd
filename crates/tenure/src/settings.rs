//! The settings of a client, with their defaults.

use std::time::Duration;

/// How long a lease lasts without renewal, unless a lock says otherwise.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long a call waits for a server that cannot be reached.
pub(crate) const UNREACHABLE_AFTER_DEFAULT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) unreachable_after: Duration,
    /// What the user calls this client in listings.
    pub(crate) name: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: TTL_DEFAULT,
            unreachable_after: UNREACHABLE_AFTER_DEFAULT,
            name: None,
        }
    }
}
