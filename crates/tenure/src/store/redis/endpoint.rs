//! Where to connect, and for how long that is the right place.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::url::RedisTarget;

#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) target: Arc<RedisTarget>,
    /// Cancelled when whoever we look for has left: all connections to it are given up.
    pub(super) moved: CancellationToken,
}

impl Endpoint {
    /// A server that stays where it is, or one that may leave.
    pub(super) fn new(target: RedisTarget) -> Self {
        Self {
            target: Arc::new(target),
            moved: CancellationToken::new(),
        }
    }
}
