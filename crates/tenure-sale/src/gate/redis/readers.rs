//! Connections for blocking reads of a queue. A blocked connection can do nothing else, so each
//! reader has its own; afterwards it is reused by the next reader of the same queue.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::redis::Dedicated;

/// The maximum age of a connection. It does not follow a failover, and a connection that was cut
/// off does not even report it: a reader would wait in vain.
const AGE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Readers {
    idle: Mutex<HashMap<String, Vec<Reader>>>,
}

/// A connection for blocking reads.
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
    /// A used connection, if there is one.
    pub(super) fn take(&self, queue: &str) -> Option<Reader> {
        let reader = self.idle().get_mut(queue)?.pop()?;
        (!reader.is_old()).then_some(reader)
    }

    /// Keeps a connection for the next reader. Only one that is not blocked.
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
