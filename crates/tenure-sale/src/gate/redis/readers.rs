//! Connections on which somebody waits for entries of a queue. A waiting connection can do nothing
//! else, so each reader has one to itself; afterwards the next reader of the same queue gets it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::redis::Dedicated;

/// How old a connection may become. It does not follow when another server becomes the master, and
/// one that was cut off does not even say so: who waits there would wait in vain.
const AGE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Readers {
    idle: Mutex<HashMap<String, Vec<Reader>>>,
}

/// A connection to wait on.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) connection: Dedicated,
    made: Instant,
}

impl Reader {
    pub(super) fn new(connection: Dedicated) -> Self {
        Self {
            connection,
            made: Instant::now(),
        }
    }

    fn is_old(&self) -> bool {
        self.made.elapsed() >= AGE_MAX
    }
}

impl Readers {
    /// A connection that was used before, if there is one.
    pub(super) fn take(&self, queue: &str) -> Option<Reader> {
        let reader = self.idle().get_mut(queue)?.pop()?;
        (!reader.is_old()).then_some(reader)
    }

    /// Keeps a connection for the next reader. Only one that waits for nothing any more.
    pub(super) fn keep(&self, queue: &str, reader: Reader) {
        let mut idle = self.idle();
        idle.entry(queue.to_owned()).or_default().push(reader);
        idle.retain(|_, readers| {
            readers.retain(|reader| !reader.is_old());
            !readers.is_empty()
        });
    }

    pub(super) fn forget(&self, queue: &str) {
        self.idle().remove(queue);
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<String, Vec<Reader>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
