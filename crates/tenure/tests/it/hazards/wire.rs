//! A server behind a proxy that breaks things, and ways around the proxy to see what is true.

use std::time::Duration;

use tenure::{Builder, LeaseId, LockName, Tenure};
use tenure_testkit::{Proxy, RedisServer, ServerBuilder, eventually};

use crate::stage::ms;
use crate::verdict::fence_of;

/// Ten times what it takes: on a crowded machine everything is slow.
pub const SOON: Duration = ms(10_000);

pub struct Wire {
    pub proxy: Proxy,
    pub server: RedisServer,
}

impl Wire {
    pub fn start() -> Self {
        Self::to(RedisServer::builder())
    }

    pub fn to(server: ServerBuilder) -> Self {
        let server = server.start();
        Self {
            proxy: Proxy::start(server.addr()),
            server,
        }
    }

    /// A client whose connections can be broken.
    pub async fn client(&self) -> Tenure {
        self.builder().connect().await.unwrap()
    }

    pub fn builder(&self) -> Builder {
        Tenure::builder(self.proxy.url())
    }

    /// A client that nothing is done to.
    pub async fn bystander(&self) -> Tenure {
        Tenure::connect(self.server.url()).await.unwrap()
    }

    /// Whom the server has as the holder.
    pub fn holder(&self, name: &str) -> Option<LeaseId> {
        let found = self.server.client().command(&["GET", name]);
        (!found.is_nil()).then(|| LeaseId::new(found.text()))
    }

    /// The last fence that the server minted.
    pub fn fence(&self, name: &str) -> Option<u64> {
        fence_of(&self.server, name)
    }

    /// How long the server will keep the lease.
    pub fn left(&self, name: &str) -> Duration {
        let pttl = self.server.client().command(&["PTTL", name]).int();
        Duration::from_millis(pttl.try_into().unwrap_or(0))
    }

    pub fn is_granted_soon(&self, name: &str) -> bool {
        eventually(SOON, || self.holder(name).is_some())
    }

    /// Whether soon a fence is minted beyond this one: that shows a grant however soon it ended.
    pub fn is_minted_soon(&self, name: &str, last: Option<u64>) -> bool {
        eventually(SOON, || self.fence(name) > last)
    }

    pub fn is_free_soon(&self, name: &str) -> bool {
        eventually(SOON, || self.holder(name).is_none())
    }

    /// Whether soon nothing is left of the lock but its fence counter.
    pub fn is_clean_soon(&self, name: &str) -> bool {
        let name = LockName::new(name).unwrap();
        let queue = format!("tenure:queue:{{{name}}}");
        let alive = format!("tenure:alive:{{{name}}}");
        let meta = format!("tenure:meta:{{{name}}}");
        let mut redis = self.server.client();
        eventually(SOON, || {
            let left = redis.command(&["EXISTS", name.as_str(), &queue, &alive, &meta]);
            left.int() == 0
        })
    }

    /// Keeps what clients send and waits until they have sent something.
    pub fn catch_requests(&self, send: impl FnOnce()) {
        self.proxy.hold_requests();
        let before = self.proxy.counts().request_chunks;
        send();
        let sent = self
            .proxy
            .wait_for(SOON, |counts| counts.request_chunks > before);
        assert!(sent, "nothing was sent");
    }
}
