//! The link between a replica and its master, cut in a way that no proxy is needed for: servers
//! name each other directly.

use std::thread;
use std::time::Duration;

use tenure_testkit::{RedisServer, eventually};

/// How long a replica may take to find its link cut, however crowded the machine is.
const NOTICE_LIMIT: Duration = Duration::from_secs(20);
/// Longer than a replica needs to connect once it has shown its password.
const HANDSHAKE: Duration = Duration::from_millis(50);

/// A replica that no longer hears its master, and can be promoted nevertheless. Healed when dropped.
pub(super) struct Cut<'a> {
    replica: &'a RedisServer,
    password: String,
}

impl<'a> Cut<'a> {
    /// Parts a replica from its master, which drops all its replicas for that; the others come back.
    ///
    /// `None` if it is no replica any more: on a crowded machine a master may be taken for dead
    /// that nobody has touched.
    pub(super) fn between(replica: &'a RedisServer, master: &RedisServer) -> Option<Self> {
        let password = replica.run(&["CONFIG", "GET", "masterauth"]);
        let password = password.array()[1].text().to_owned();
        replica.set_config("masterauth", "not-the-password");
        let cut = Self { replica, password };
        // One that was just about to connect had shown the right password already: twice.
        let is_over = || {
            master.run(&["CLIENT", "KILL", "TYPE", "replica"]);
            thread::sleep(HANDSHAKE);
            replica.master_link().as_deref() != Some("up")
        };
        let is_over = eventually(NOTICE_LIMIT, is_over) && eventually(NOTICE_LIMIT, is_over);
        assert!(is_over, "the link is not cut");
        replica.master_link().map(|_| cut)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.replica.set_config("masterauth", &self.password);
        // Sentinel may have had the wrong one written down meanwhile.
        self.replica.run(&["CONFIG", "REWRITE"]);
    }
}
