//! Which node has a key, and which one to try next after a redirect.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::cluster::{Cluster, Redirect, Route};
use super::connection::Connection;
use super::node::Node;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::{Event, Failure};

pub(super) enum Routes {
    /// All keys are on one node.
    One(Arc<Node>),
    /// Each key has a slot, and each slot a node.
    Cluster(Arc<Cluster>),
}

impl Routes {
    /// Starts to forward what the servers send. Must be called on the engine.
    pub(super) fn start(&self, events: mpsc::UnboundedSender<Event>) {
        match self {
            Self::One(node) => node.start(&events),
            Self::Cluster(cluster) => cluster.start(events),
        }
    }

    /// Whether this error reply is a redirect: the node did nothing, and another one has the key.
    pub(super) fn is_elsewhere(&self, reply: &str) -> bool {
        matches!(self, Self::Cluster(_)) && Redirect::read(reply).is_some()
    }

    /// Whether all locks share one fence counter.
    pub(super) fn shares_counter(&self) -> bool {
        match self {
            Self::One(node) => node.server.shares_counter(),
            Self::Cluster(_) => false,
        }
    }

    /// The tag of the key under which a node stores since when it has been the primary: one key for
    /// all its locks, because a new name would have no such key. `None` if no tag is needed.
    pub(super) fn reign_tag(&self, node: &Arc<Node>) -> Option<u32> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster.reign_tag(node)),
        }
    }

    /// Connects, so that a wrong address or password is reported at once.
    pub(super) async fn connect(&self, limit: Moment) -> Result<(), Failure> {
        match self {
            Self::One(node) => node.connect(limit).await,
            Self::Cluster(cluster) => cluster.connect(limit).await,
        }
    }

    /// The route to the node that has this key, as far as is known.
    pub(super) fn route(&self, key: &str) -> Result<Route, Failure> {
        match self {
            Self::One(node) => Ok(Route::to(Arc::clone(node))),
            Self::Cluster(cluster) => cluster.route(key),
        }
    }

    /// The route to try first, or after the failure of a first try.
    pub(super) async fn first_route(
        &self,
        key: &str,
        failed: Option<(Route, Failure)>,
        limit: Moment,
    ) -> Result<Route, Failure> {
        match failed {
            None => self.route(key),
            Some((route, failure)) => self.next_route(key, route, failure, limit).await,
        }
    }

    /// The route to try after a failure, if there is one.
    pub(super) async fn next_route(
        &self,
        key: &str,
        route: Route,
        failure: Failure,
        limit: Moment,
    ) -> Result<Route, Failure> {
        match self {
            Self::One(_) => Err(failure),
            Self::Cluster(cluster) => cluster.next_route(key, route, failure, limit).await,
        }
    }

    /// Learns from a failure that is returned to the caller.
    pub(super) fn note_failure(&self, node: &Arc<Node>, failure: Failure) -> Failure {
        match self {
            Self::One(_) => failure,
            Self::Cluster(cluster) => cluster.note_failure(node, failure),
        }
    }

    /// Learns from an error reply inside a pipeline.
    pub(super) fn note_error_reply(&self, node: &Arc<Node>, reply: &str) {
        if let Self::Cluster(cluster) = self {
            cluster.note_error_reply(node, reply);
        }
    }

    /// The only node. A cluster has no such node.
    pub(super) fn any(&self) -> Result<Arc<Node>, Failure> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(_) => Err(Failure::refused(Error::new(
                ErrorKind::Unsupported,
                "this needs a single server, not a cluster: use `redis://`",
            ))),
        }
    }

    /// All nodes that are known.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The connection with this id, if it is still open: a later request on it arrives later.
    pub(super) fn connection_with_id(&self, id: u64) -> Option<(Arc<Node>, Arc<Connection>)> {
        let nodes = self.all().into_iter();
        let mut found =
            nodes.filter_map(|node| node.connection_with_id(id).map(|found| (node, found)));
        found.next()
    }
}
