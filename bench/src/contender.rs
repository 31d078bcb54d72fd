//! A lock as the measures see it, whoever made it.

use std::time::Duration;

/// The length of every lease, here and at the peers: Tenure's default.
pub const TTL: Duration = Duration::from_secs(30);

/// Somebody's lock. Everybody is measured by the same code through this trait.
///
/// A benchmark has no use for errors: whatever fails panics.
pub trait Contender: Clone + Send + Sync + 'static {
    /// What the holder holds.
    type Held: Send;

    /// Takes the lock; waits for it if this one can wait.
    fn acquire(&self, name: &str) -> impl Future<Output = Self::Held> + Send;

    /// Gives it back, and returns when the server has said so.
    fn release(&self, held: Self::Held) -> impl Future<Output = ()> + Send;
}
