//! One server as a store uses it: a connection for commands, one on which the server speaks
//! unasked, and one that callers drive themselves.

use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::exclusive::{Exclusive, Seat};
use super::lane::Lane;
use super::link::{Connection, Link};
use super::listener::Listener;
use super::server::Server;
use crate::moment::Moment;
use crate::store::Failure;

pub(super) struct Node {
    pub(super) server: Arc<Server>,
    pub(super) commands: Link,
    pub(super) listener: Arc<Listener>,
    lane: Option<Lane>,
    /// For what replicas must confirm: grants, and renewals, which must not wait for those.
    granting: Arc<Exclusive>,
    keeping: Arc<Exclusive>,
}

/// A connection to ask on: shared with others, or one's own for a while.
pub(super) enum Line {
    Shared(Arc<Connection>),
    Own(Seat),
}

impl Deref for Line {
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
    pub(super) fn new(server: Arc<Server>, runtime: Option<Handle>) -> Arc<Self> {
        Arc::new(Self {
            commands: Link::new(Arc::clone(&server)),
            lane: runtime.map(|runtime| Lane::new(Arc::clone(&server), runtime)),
            listener: Listener::new(Arc::clone(&server)),
            granting: Exclusive::new(Arc::clone(&server)),
            keeping: Exclusive::new(Arc::clone(&server)),
            server,
        })
    }

    /// Connects, so that a wrong address or password is found at once.
    pub(super) async fn reach(&self, limit: Moment) -> Result<(), Failure> {
        self.commands.connection(limit).await?;
        match &self.lane {
            Some(lane) => lane.reach().await,
            None => Ok(()),
        }
    }

    /// A connection for a question whose answer so many replicas must confirm.
    pub(super) async fn line(&self, replicas: u32, limit: Moment) -> Result<Line, Failure> {
        match replicas {
            0 => Ok(Line::Shared(self.commands.connection(limit).await?)),
            _ => Ok(Line::Own(self.granting.take(limit).await?)),
        }
    }

    /// The same for renewals, which keep what others only want.
    pub(super) async fn keeping(&self, limit: Moment) -> Result<Seat, Failure> {
        self.keeping.take(limit).await
    }

    /// A connection for a question that the caller's own task asks.
    pub(super) fn connection_here(&self) -> Option<Arc<Connection>> {
        let lane = self.lane.as_ref().and_then(Lane::here);
        lane.or_else(|| self.commands.live())
    }

    /// The connection with this id that callers drive, if there is one: what is sent there later
    /// arrives later.
    pub(super) fn lane_with_id(&self, id: Option<u64>) -> Option<Arc<Connection>> {
        let (lane, id) = self.lane.as_ref().zip(id)?;
        lane.with_id(id)
    }

    /// The connection to renew on, and whether it tracks: the one that does if the lease is
    /// watched, because its own renewals are no news to it.
    pub(super) async fn renewing(
        &self,
        watched: bool,
        limit: Moment,
    ) -> Result<(Arc<Connection>, bool), Failure> {
        if watched
            && self.listener.link.is_greeted()
            && let Some(connection) = self.listener.link.live()
        {
            return Ok((connection, true));
        }
        Ok((self.commands.connection(limit).await?, false))
    }
}
