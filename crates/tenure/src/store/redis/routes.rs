//! Which node has a lock.

use std::sync::Arc;

use super::node::Node;
use crate::name::LockName;
use crate::store::Failure;

pub(super) enum Routes {
    /// All locks are on one node.
    One(Arc<Node>),
}

impl Routes {
    /// The node that has this lock, as far as is known.
    pub(super) fn node(&self, _name: &LockName) -> Result<Arc<Node>, Failure> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
        }
    }

    /// The key where the node that has this lock keeps since when it reigns.
    pub(super) fn reign_key(&self, _name: &LockName) -> String {
        match self {
            // One for all locks: a name that is new has no reign to find.
            Self::One(_) => "tenure:reign".to_owned(),
        }
    }

    /// The node that has what concerns no lock.
    pub(super) fn any(&self) -> Result<Arc<Node>, Failure> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
        }
    }

    /// All nodes that are known.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
        }
    }
}
