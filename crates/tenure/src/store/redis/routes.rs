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
