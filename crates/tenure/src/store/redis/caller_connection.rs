//! A connection that the caller's own runtime drives.
//!
//! A connection driven by the engine costs a caller two wake-ups across threads per request. A
//! client that was given a tokio runtime has a second connection, driven by that runtime: callers
//! that run there write the request and read the reply themselves. Everything else stays on the
//! engine, so a runtime that is blocked or gone affects only its own callers.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::connection::Connection;
use super::reconnect::{CONNECT_LIMIT, Reconnector};
use super::server::Server;
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

pub(super) struct CallerConnection {
    runtime: Handle,
    reconnector: Reconnector,
}

impl CallerConnection {
    /// Must be called on the engine.
    pub(super) fn new(server: Arc<Server>, runtime: Handle) -> Self {
        Self {
            runtime,
            reconnector: Reconnector::driven_elsewhere(server, Handle::current()),
        }
    }

    /// Connects, so that an unsuitable runtime is reported at once.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        let reconnector = self.reconnector.clone();
        let limit = reconnector.now() + CONNECT_LIMIT;
        let connecting = async move { reconnector.connection(limit).await.map(|_| ()) };
        let unable = |error| {
            Failure::refused(
                Error::new(
                    ErrorKind::InvalidSetting,
                    "cannot drive a connection on the given runtime: it has no IO or no timers, \
                     or was shut down; build it with `enable_all`, or do not set a runtime",
                )
                .caused_by(error),
            )
        };
        self.runtime.spawn(connecting).await.map_err(unable)?
    }

    /// The connection, if the caller runs on its runtime and it is established.
    pub(super) fn for_current_runtime(&self) -> Option<Arc<Connection>> {
        let here = Handle::try_current().ok()?;
        if here.id() != self.runtime.id() {
            return None;
        }
        let live = self.reconnector.live();
        if live.is_none() {
            self.reconnector.begin_connecting();
        }
        live
    }

    /// The connection with this id, if it is this one.
    pub(super) fn with_id(&self, id: u64) -> Option<Arc<Connection>> {
        self.reconnector
            .live()
            .filter(|connection| connection.id == id)
    }
}
