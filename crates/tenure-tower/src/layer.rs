//! The layer: which lock a request needs, and how it is acquired.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tenure::{Lock, Locks, Unordered};
use tower_layer::Layer;

use crate::service::LockService;

/// Holds a lock around each request of the services that it is put around.
#[derive(Clone)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct LockLayer<F> {
    locks: Locks,
    name: F,
    configure: Arc<dyn Fn(Lock<Unordered>) -> Lock<Unordered> + Send + Sync>,
    wait: Duration,
}

impl<F> LockLayer<F>
where
    F: Fn(&Parts) -> Option<String>,
{
    /// A layer with locks of this client. `name` says which lock a request needs; `None` if it needs
    /// none.
    ///
    /// Names are part of Redis keys: do not let a client choose among all of them. A name that is not
    /// allowed is answered with `422`.
    pub fn new(locks: &Locks, name: F) -> Self {
        Self {
            locks: locks.clone(),
            name,
            configure: Arc::new(|lock| lock),
            wait: Duration::ZERO,
        }
    }

    /// How long a request waits for its lock: not at all by default.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Other settings of the locks, such as `|lock| lock.ttl(ttl).shared()`.
    pub fn configure(
        mut self,
        configure: impl Fn(Lock<Unordered>) -> Lock<Unordered> + Send + Sync + 'static,
    ) -> Self {
        self.configure = Arc::new(configure);
        self
    }

    /// The lock that a request needs.
    pub(crate) fn lock_of(&self, request: &Parts) -> Option<Lock<Unordered>> {
        let lock = self.locks.lock((self.name)(request)?).wait(self.wait);
        Some((self.configure)(lock))
    }
}

impl<S, F: Clone> Layer<S> for LockLayer<F> {
    type Service = LockService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService {
            inner,
            layer: self.clone(),
        }
    }
}

impl<F> fmt::Debug for LockLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
