//! The link between a replica and its master, cut in a way that no proxy is needed for: servers
//! name each other directly.

use std::time::Duration;

use tenure_testkit::{RedisServer, eventually};

const NOTICE_LIMIT: Duration = Duration::from_secs(5);

/// A replica that no longer hears its master, and can be promoted nevertheless. Healed when dropped.
pub(super) struct Cut<'a> {
    replica: &'a RedisServer,
    password: String,
}

impl<'a> Cut<'a> {
    /// Parts a replica from its master, which drops all its replicas for that; the others come back.
    pub(super) fn between(replica: &'a RedisServer, master: &RedisServer) -> Self {
        let password = replica.client().command(&["CONFIG", "GET", "masterauth"]);
        let password = password.array()[1].text().to_owned();
        replica.set_config("masterauth", "not-the-password");
        master
            .client()
            .command(&["CLIENT", "KILL", "TYPE", "replica"]);
        let is_down = || replica.info("master_link_status") == "down";
        assert!(eventually(NOTICE_LIMIT, is_down), "the link is not cut");
        Self { replica, password }
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.replica.set_config("masterauth", &self.password);
        // Sentinel may have had the wrong one written down meanwhile.
        self.replica.client().command(&["CONFIG", "REWRITE"]);
    }
}
