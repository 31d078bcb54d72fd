//! A connection that the caller's own runtime drives.
//!
//! A connection that the engine drives costs a caller two wake-ups across threads for each question.
//! A client that was given a tokio runtime has a second one, which that runtime drives: callers who
//! run there write their question and read the answer themselves. Everything else stays with the
//! engine, so that a runtime that is blocked or gone costs nobody else anything.

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

    /// Connects, so that a runtime that cannot do it is found at once.
    pub(super) async fn reach(&self) -> Result<(), Failure> {
        let reconnector = self.reconnector.clone();
        let limit = reconnector.now() + CONNECT_LIMIT;
        let connecting = async move { reconnector.connection(limit).await.map(|_| ()) };
        let unable = |error| {
            Failure::refused(
                Error::new(
                    ErrorKind::InvalidSetting,
                    "cannot drive a connection on the runtime that was given: it has no IO or no \
                     timers, or was shut down; build it with `enable_all`, or give none",
                )
                .caused_by(error),
            )
        };
        self.runtime.spawn(connecting).await.map_err(unable)?
    }

    /// The connection, if the caller runs where it is driven, and it is there.
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
