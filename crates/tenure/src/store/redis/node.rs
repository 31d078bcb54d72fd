//! One server as a store uses it: a connection for commands, one for pub/sub messages and
//! invalidations, and one that callers drive themselves.

use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::caller_connection::CallerConnection;
use super::channels::Channels;
use super::connection::Connection;
use super::dedicated_pool::{DedicatedConnection, DedicatedPool};
use super::listener::{Listener, ListenerScope};
use super::reconnect::Reconnector;
use super::server::Server;
use crate::moment::Moment;
use crate::store::{Event, Failure};
use crate::url::Address;

pub(super) struct Node {
    pub(super) server: Arc<Server>,
    pub(super) commands: Reconnector,
    /// Receives invalidations of watched leases.
    pub(super) listener: Arc<Listener>,
    /// Receives messages for waiters: usually the same listener.
    pub(super) messages: Arc<Listener>,
    caller: Option<CallerConnection>,
    /// For what replicas must confirm: grants, and renewals, which must not wait for grants.
    grant_pool: Arc<DedicatedPool>,
    renew_pool: Arc<DedicatedPool>,
}

/// A connection to run a script on: shared, or dedicated for a while.
pub(super) enum ScriptConnection {
    Shared(Arc<Connection>),
    Dedicated(DedicatedConnection),
}

impl Deref for ScriptConnection {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        match self {
            Self::Shared(connection) => connection,
            Self::Dedicated(dedicated) => dedicated,
        }
    }
}

impl Node {
    /// Must be called on the engine. With a runtime, callers that run there use its connection.
    pub(super) fn new(
        server: Arc<Server>,
        runtime: Option<Handle>,
        channels: &Arc<Channels>,
    ) -> Arc<Self> {
        let listener = |scope| Listener::new(Arc::clone(&server), scope, Arc::clone(channels));
        let tracking = listener(ListenerScope::All);
        let messages = if server.sharded {
            listener(ListenerScope::Shard)
        } else {
            Arc::clone(&tracking)
        };
        Arc::new(Self {
            commands: Reconnector::new(Arc::clone(&server)),
            caller: runtime.map(|runtime| CallerConnection::new(Arc::clone(&server), runtime)),
            listener: tracking,
            messages,
            grant_pool: DedicatedPool::new(Arc::clone(&server)),
            renew_pool: DedicatedPool::new(Arc::clone(&server)),
            server,
        })
    }

    /// Starts to forward what the server sends. Must be called on the engine.
    pub(super) fn start(&self, events: &mpsc::UnboundedSender<Event>) {
        self.listener.start(events.clone());
        self.messages.start(events.clone());
    }

    /// Connects, so that a wrong address or password is reported at once.
    pub(super) async fn connect(&self, limit: Moment) -> Result<(), Failure> {
        self.commands.connection(limit).await?;
        match &self.caller {
            Some(caller) => caller.connect().await,
            None => Ok(()),
        }
    }

    pub(super) fn is_at(&self, address: &Address) -> bool {
        self.server.target.address == *address
    }

    /// A connection for a grant that replicas must acknowledge.
    pub(super) async fn grant_connection(
        &self,
        limit: Moment,
    ) -> Result<DedicatedConnection, Failure> {
        self.grant_pool.take(limit).await
    }

    /// The same for renewals, so that they never wait for grants.
    pub(super) async fn renewal_connection(
        &self,
        limit: Moment,
    ) -> Result<DedicatedConnection, Failure> {
        self.renew_pool.take(limit).await
    }

    /// A connection for a request from the caller's own task.
    pub(super) fn caller_connection(&self) -> Option<Arc<Connection>> {
        let caller = self
            .caller
            .as_ref()
            .and_then(CallerConnection::for_current_runtime);
        caller.or_else(|| self.commands.live())
    }

    /// The connection with this id, if it is still open: a later request on it arrives later.
    pub(super) fn connection_with_id(&self, id: u64) -> Option<Arc<Connection>> {
        let caller = self.caller.as_ref().and_then(|caller| caller.with_id(id));
        caller.or_else(|| {
            self.commands
                .live()
                .filter(|connection| connection.id == id)
        })
    }

    /// The tracking connection, to renew a watched lease on: its own renewals cause no
    /// invalidation.
    pub(super) fn tracking(&self, watched: bool) -> Option<Arc<Connection>> {
        let reconnector = &self.listener.reconnector;
        (watched && reconnector.is_set_up()).then(|| reconnector.live())?
    }
}

/// A node that has left the cluster is not reconnected.
impl Drop for Node {
    fn drop(&mut self) {
        self.listener.close();
        self.messages.close();
    }
}
