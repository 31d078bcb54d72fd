//! Connections on which somebody waits for entries of a queue. A waiting connection can do nothing
//! else, so each reader has one to itself; afterwards the next reader of the same item gets it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::redis::Dedicated;

/// A connection that nobody used for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Readers {
    idle: Mutex<HashMap<String, Vec<(Dedicated, Instant)>>>,
}

impl Readers {
    /// A connection that was used before, if there is one.
    pub(super) fn take(&self, item: &str) -> Option<Dedicated> {
        let (connection, _) = self.idle().get_mut(item)?.pop()?;
        Some(connection)
    }

    /// Keeps a connection for the next reader. Only one that waits for nothing any more.
    pub(super) fn keep(&self, item: &str, connection: Dedicated) {
        let now = Instant::now();
        let mut idle = self.idle();
        idle.entry(item.to_owned())
            .or_default()
            .push((connection, now));
        idle.retain(|_, connections| {
            connections.retain(|(_, since)| now.duration_since(*since) < IDLE_MAX);
            !connections.is_empty()
        });
    }

    pub(super) fn forget(&self, item: &str) {
        self.idle().remove(item);
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<String, Vec<(Dedicated, Instant)>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
