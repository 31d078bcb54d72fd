//! Where to connect, and until when that is the right server.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::url::RedisTarget;

#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) target: Arc<RedisTarget>,
    /// Cancelled when the server has moved: all connections to this endpoint are closed.
    pub(super) moved: CancellationToken,
}

impl Endpoint {
    /// An endpoint that is valid until `moved` is cancelled, if ever.
    pub(super) fn new(target: RedisTarget) -> Self {
        Self {
            target: Arc::new(target),
            moved: CancellationToken::new(),
        }
    }
}
