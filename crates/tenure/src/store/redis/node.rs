//! One server as a store uses it: a connection for commands, one on which the server speaks
//! unasked, and one that callers drive themselves.

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
    /// Word of watched leases comes here.
    pub(super) listener: Arc<Listener>,
    /// Messages for waiters come here: mostly the same.
    pub(super) wakes: Arc<Listener>,
    lane: Option<CallerConnection>,
    /// For what replicas must confirm: grants, and renewals, which must not wait for those.
    granting: Arc<DedicatedPool>,
    keeping: Arc<DedicatedPool>,
}

/// A connection to ask on: shared with others, or one's own for a while.
pub(super) enum ScriptConnection {
    Shared(Arc<Connection>),
    Own(DedicatedConnection),
}

impl Deref for ScriptConnection {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        match self {
            Self::Shared(connection) => connection,
            Self::Own(seat) => seat,
        }
    }
}

impl Node {
    /// Must be called on the engine. With a runtime, callers who run there are served by it.
    pub(super) fn new(
        server: Arc<Server>,
        runtime: Option<Handle>,
        channels: &Arc<Channels>,
    ) -> Arc<Self> {
        let listener = |hears| Listener::new(Arc::clone(&server), hears, Arc::clone(channels));
        let tracks = listener(ListenerScope::All);
        let wakes = if server.sharded {
            listener(ListenerScope::Shard)
        } else {
            Arc::clone(&tracks)
        };
        Arc::new(Self {
            commands: Reconnector::new(Arc::clone(&server)),
            lane: runtime.map(|runtime| CallerConnection::new(Arc::clone(&server), runtime)),
            listener: tracks,
            wakes,
            granting: DedicatedPool::new(Arc::clone(&server)),
            keeping: DedicatedPool::new(Arc::clone(&server)),
            server,
        })
    }

    /// Begins to pass on what the server says. Must be called on the engine.
    pub(super) fn start(&self, events: &mpsc::UnboundedSender<Event>) {
        self.listener.start(events.clone());
        self.wakes.start(events.clone());
    }

    /// Connects, so that a wrong address or password is found at once.
    pub(super) async fn reach(&self, limit: Moment) -> Result<(), Failure> {
        self.commands.connection(limit).await?;
        match &self.lane {
            Some(lane) => lane.reach().await,
            None => Ok(()),
        }
    }

    pub(super) fn is_at(&self, address: &Address) -> bool {
        self.server.target.address == *address
    }

    /// A connection for a question whose answer so many replicas must confirm.
    pub(super) async fn line(
        &self,
        replicas: u32,
        limit: Moment,
    ) -> Result<ScriptConnection, Failure> {
        match replicas {
            0 => Ok(ScriptConnection::Shared(
                self.commands.connection(limit).await?,
            )),
            _ => Ok(ScriptConnection::Own(self.granting.take(limit).await?)),
        }
    }

    /// The same for renewals, which keep what others only want.
    pub(super) async fn keeping(&self, limit: Moment) -> Result<DedicatedConnection, Failure> {
        self.keeping.take(limit).await
    }

    /// A connection for a question that the caller's own task asks.
    pub(super) fn connection_here(&self) -> Option<Arc<Connection>> {
        let lane = self.lane.as_ref().and_then(CallerConnection::here);
        lane.or_else(|| self.commands.live())
    }

    /// The connection with this id, if it is there: what is sent on it later arrives later.
    pub(super) fn connection_with_id(&self, id: u64) -> Option<Arc<Connection>> {
        let lane = self.lane.as_ref().and_then(|lane| lane.with_id(id));
        lane.or_else(|| {
            self.commands
                .live()
                .filter(|connection| connection.id == id)
        })
    }

    /// The connection to renew on if it tracks, as it does for a lease that is watched: its own
    /// renewals are no news to it.
    pub(super) fn tracking(&self, watched: bool) -> Option<Arc<Connection>> {
        let link = &self.listener.link;
        (watched && link.is_greeted()).then(|| link.live())?
    }
}

/// A node that has left the cluster is not called back.
impl Drop for Node {
    fn drop(&mut self) {
        self.listener.close();
        self.wakes.close();
    }
}
