//! Connections that serve one request at a time.
//!
//! `WAIT` blocks a connection for all who share it, and covers only what was written on that
//! connection. So a grant that replicas must confirm has a connection of its own, from its script
//! to the reply to `WAIT`. When all connections are in use, a request waits without having sent
//! anything.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::Connection;
use super::reconnect::Reconnector;
use super::server::Server;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::Failure;

/// How many there are at most: enough that one unreachable replica does not stall every lock.
const CONNECTIONS_MAX: usize = 4;

pub(super) struct DedicatedPool {
    server: Arc<Server>,
    permits: Arc<Semaphore>,
    /// Connections not in use, the most recently used last.
    idle: Mutex<Vec<Reconnector>>,
}

/// A connection for one request, until it is dropped.
pub(super) struct DedicatedConnection {
    connection: Arc<Connection>,
    reconnector: Option<Reconnector>,
    pool: Arc<DedicatedPool>,
    _permit: OwnedSemaphorePermit,
}

impl DedicatedPool {
    pub(super) fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server,
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            idle: Mutex::default(),
        })
    }

    pub(super) async fn take(
        self: &Arc<Self>,
        limit: Moment,
    ) -> Result<DedicatedConnection, Failure> {
        let left = limit.saturating_since(self.server.clock.now());
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(left, waiting).await;
        let Ok(Ok(permit)) = permit else {
            return Err(self.all_busy_error());
        };
        let reconnector = self.idle().pop();
        let reconnector = reconnector.unwrap_or_else(|| Reconnector::new(Arc::clone(&self.server)));
        Ok(DedicatedConnection {
            connection: reconnector.connection(limit).await?,
            reconnector: Some(reconnector),
            pool: Arc::clone(self),
            _permit: permit,
        })
    }

    fn all_busy_error(&self) -> Failure {
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the replicas of `{}` are too slow: all connections wait for them to acknowledge \
                 other locks",
                self.server
            ),
        ))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reconnector>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.pool.idle().extend(self.reconnector.take());
    }
}
