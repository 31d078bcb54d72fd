//! Which node has a key, and where to go on when it is another one's.

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
    /// Begins to pass on what the servers say. Must be called on the engine.
    pub(super) fn start(&self, events: mpsc::UnboundedSender<Event>) {
        match self {
            Self::One(node) => node.start(&events),
            Self::Cluster(cluster) => cluster.start(events),
        }
    }

    /// Whether a node said by this that it did nothing, and that another one should be asked.
    pub(super) fn is_elsewhere(&self, reply: &str) -> bool {
        matches!(self, Self::Cluster(_)) && Redirect::read(reply).is_some()
    }

    /// The key where a node keeps since when it reigns: one for all its locks, because a name that is
    /// new has no reign to find.
    pub(super) fn reign_key(&self, node: &Arc<Node>) -> String {
        match self {
            Self::One(_) => "tenure:reign".to_owned(),
            Self::Cluster(cluster) => cluster.reign_key(node),
        }
    }

    /// Connects, so that a wrong address or password is found at once.
    pub(super) async fn reach(&self, limit: Moment) -> Result<(), Failure> {
        match self {
            Self::One(node) => node.reach(limit).await,
            Self::Cluster(cluster) => cluster.reach(limit).await,
        }
    }

    /// The way to the node that has this key, as far as is known.
    pub(super) fn route(&self, key: &str) -> Result<Route, Failure> {
        match self {
            Self::One(node) => Ok(Route::to(Arc::clone(node))),
            Self::Cluster(cluster) => cluster.route(key),
        }
    }

    /// Where to go on after a failure, if there is somewhere.
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

    /// Learns what can be learned from a failure that is left to the caller.
    pub(super) fn note_failure(&self, node: &Arc<Node>, failure: Failure) -> Failure {
        match self {
            Self::One(_) => failure,
            Self::Cluster(cluster) => cluster.note_failure(node, failure),
        }
    }

    /// Learns what a node said in the middle of a pipeline.
    pub(super) fn note_error_reply(&self, node: &Arc<Node>, reply: &str) {
        if let Self::Cluster(cluster) = self {
            cluster.note_error_reply(node, reply);
        }
    }

    /// The only node. A cluster has none that is.
    pub(super) fn any(&self) -> Result<Arc<Node>, Failure> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(_) => Err(Failure::refused(Error::new(
                ErrorKind::Unsupported,
                "a cluster has many servers, and this needs a single one: use `redis://`",
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

    /// The connection with this id, if it is there: what is sent on it later arrives later.
    pub(super) fn connection_with_id(&self, id: u64) -> Option<(Arc<Node>, Arc<Connection>)> {
        let nodes = self.all().into_iter();
        let mut found =
            nodes.filter_map(|node| node.connection_with_id(id).map(|found| (node, found)));
        found.next()
    }
}
