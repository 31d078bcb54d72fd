//! Latches, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::handle::Handle;
use crate::error::Result;

/// A latch. See [`tenure::Latch`](crate::Latch).
///
/// ```
/// use tenure::blocking::Tenure;
///
/// # fn main() -> Result<(), tenure::Error> {
/// let tenure = Tenure::connect("memory://")?;
/// let loaded = tenure.latch("loaded", 1);
/// loaded.arrive("shard-1")?;
/// loaded.wait()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a latch does nothing until it is used"]
pub struct Latch {
    latch: crate::Latch,
    _handle: Arc<Handle>,
}

impl Latch {
    pub(super) fn new(handle: &Arc<Handle>, name: &str, need: u32) -> Self {
        Self {
            latch: handle.locks.latch(name, need),
            _handle: Arc::clone(handle),
        }
    }

    /// See [`tenure::Latch::remember`](crate::Latch::remember).
    pub fn remember(mut self, time: Duration) -> Self {
        self.latch = self.latch.remember(time);
        self
    }

    /// See [`tenure::Latch::limit`](crate::Latch::limit).
    pub fn limit(mut self, limit: Duration) -> Self {
        self.latch = self.latch.limit(limit);
        self
    }

    /// The latch's name, as given.
    pub fn name(&self) -> &str {
        self.latch.name()
    }

    /// How many parties must arrive, as given.
    pub fn need(&self) -> u32 {
        self.latch.need()
    }

    /// Says that this party has arrived. See [`tenure::Latch::arrive`](crate::Latch::arrive).
    pub fn arrive(&self, party: impl Into<String>) -> Result<u32> {
        block_on(self.latch.arrive(party))
    }

    /// How many parties have arrived.
    pub fn arrived(&self) -> Result<u32> {
        block_on(self.latch.arrived())
    }

    /// Whether all have arrived.
    pub fn is_open(&self) -> Result<bool> {
        block_on(self.latch.is_open())
    }

    /// Waits until all have arrived. See [`tenure::Latch::wait`](crate::Latch::wait).
    pub fn wait(&self) -> Result<()> {
        block_on(self.latch.wait())
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.latch, f)
    }
}
