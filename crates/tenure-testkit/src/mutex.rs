//! Locking after a panic: a failed test must still be able to clean up.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also what a panicking thread had locked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
