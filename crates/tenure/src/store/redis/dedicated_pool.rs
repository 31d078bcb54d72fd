//! Connections that one question at a time uses.
//!
//! `WAIT` blocks a connection for everybody who shares it, and speaks only of what was written on
//! that very connection. So a grant that replicas must confirm has one to itself, from its script to
//! the answer of `WAIT`. Who finds all of them taken waits without having sent anything.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::Connection;
use super::reconnect::Reconnector;
use super::server::Server;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::Failure;

/// How many there are at most: enough that one replica that is gone does not stall every lock.
const SEATS: usize = 4;

pub(super) struct DedicatedPool {
    server: Arc<Server>,
    seats: Arc<Semaphore>,
    /// Links that nobody uses at the moment, the last used one last.
    free: Mutex<Vec<Reconnector>>,
}

/// A connection of one's own, until it is dropped.
pub(super) struct DedicatedConnection {
    connection: Arc<Connection>,
    link: Option<Reconnector>,
    all: Arc<DedicatedPool>,
    _permit: OwnedSemaphorePermit,
}

impl DedicatedPool {
    pub(super) fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server,
            seats: Arc::new(Semaphore::new(SEATS)),
            free: Mutex::default(),
        })
    }

    pub(super) async fn take(
        self: &Arc<Self>,
        limit: Moment,
    ) -> Result<DedicatedConnection, Failure> {
        let left = limit.saturating_since(self.server.clock.now());
        let waiting = Arc::clone(&self.seats).acquire_owned();
        let permit = tokio::time::timeout(left, waiting).await;
        let Ok(Ok(permit)) = permit else {
            return Err(self.all_taken());
        };
        let link = self.free().pop();
        let link = link.unwrap_or_else(|| Reconnector::new(Arc::clone(&self.server)));
        Ok(DedicatedConnection {
            connection: link.connection(limit).await?,
            link: Some(link),
            all: Arc::clone(self),
            _permit: permit,
        })
    }

    fn all_taken(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the replicas of `{}` take so long to confirm other locks that this one could not \
                 be asked for in time",
                self.server
            ),
        ))
    }

    fn free(&self) -> MutexGuard<'_, Vec<Reconnector>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for DedicatedConnection {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for DedicatedConnection {
    fn drop(&mut self) {
        self.all.free().extend(self.link.take());
    }
}
