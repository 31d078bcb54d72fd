//! A lock that is held as before, because its mode could not be changed.

use std::fmt;

use crate::error::Error;
use crate::guard::Guard;

/// Why the mode of a lock was not changed, and the guard, which holds the lock as before.
///
/// [`into_error`](Unchanged::into_error) drops the guard, which releases the lock.
#[derive(Debug)]
pub struct Unchanged {
    /// `None` if the lock is no longer held: the lease was lost, or the store did not say whether the
    /// mode was changed. In the second case the lock is released.
    pub guard: Option<Guard>,
    /// Why.
    pub error: Error,
}

impl Unchanged {
    /// The error alone, for a caller that does not go on with the guard.
    pub fn into_error(self) -> Error {
        self.error
    }

    pub(crate) fn held(guard: Guard, error: Error) -> Self {
        Self {
            guard: Some(guard),
            error,
        }
    }

    pub(crate) fn no_longer_held(error: Error) -> Self {
        Self { guard: None, error }
    }
}

impl fmt::Display for Unchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unchanged {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
