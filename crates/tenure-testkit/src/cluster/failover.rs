//! Promotes a replica to master of its shard.

use std::time::Duration;

use super::view::View;
use super::{Cluster, SETTLE_LIMIT};
use crate::RedisServer;
use crate::server::ADMIN_PASSWORD;
use crate::wait::until_ok;

/// A replica that takes over without a vote just after another failover may pick the same epoch as
/// another node. Then it loses, and the command must be repeated.
const FAILOVER_TRIES: u32 = 3;

/// How a replica becomes the master; see [`Cluster::failover`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailoverKind {
    /// Coordinated with its master: nothing is lost.
    Orderly,
    /// Without its master, but with a vote of the others.
    Force,
    /// Without a vote.
    Takeover,
}

impl Cluster {
    /// Makes a replica the master of its shard, and returns when all nodes know. The old master becomes
    /// its replica if it is running.
    #[track_caller]
    pub fn failover(&self, replica: &RedisServer, kind: FailoverKind) {
        let words: &[&str] = match kind {
            FailoverKind::Orderly => &["CLUSTER", "FAILOVER"],
            FailoverKind::Force => &["CLUSTER", "FAILOVER", "FORCE"],
            FailoverKind::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        };
        let promoted = || {
            let master = self.serving_in_shard_of(replica)?;
            if !master.is(replica) {
                return Err(format!("`{}` did not become master", replica.addr()));
            }
            self.is_ok()
        };
        for _ in 0..FAILOVER_TRIES {
            if replica.info("role") == "slave" {
                replica.run(words);
            }
            if until_ok(SETTLE_LIMIT / FAILOVER_TRIES, promoted).is_ok() {
                return;
            }
        }
        self.expect(|_| promoted());
    }

    /// Kills the master of a slot and returns it. See
    /// [`wait_for_failover`](Self::wait_for_failover).
    #[track_caller]
    pub fn kill_master_of(&self, slot: u16) -> &RedisServer {
        let master = self.master_of_slot(slot);
        master.kill();
        master
    }

    /// Waits until all running nodes see that a replica has replaced the master `from`, and returns the
    /// new master; panics with the logs if that takes longer than `limit`.
    #[track_caller]
    pub fn wait_for_failover(&self, from: &RedisServer, limit: Duration) -> &RedisServer {
        let promoted = until_ok(limit, || {
            let master = self.serving_in_shard_of(from)?;
            if master.is(from) {
                return Err(format!("`{}` is still the master", from.addr()));
            }
            self.is_ok().map(|()| master)
        });
        promoted.unwrap_or_else(|error| {
            self.fail(&format!("no failover within `{limit:?}`: {error}"));
        })
    }

    /// Permanently disconnects a replica from its master, and both notice: the replica gets no later
    /// writes. It can still be promoted by any failover except an [orderly](FailoverKind::Orderly) one.
    #[track_caller]
    pub fn cut_replication(&self, replica: &RedisServer) {
        // Nodes connect to each other directly, so no proxy can be placed between them.
        replica.set_config("masterauth", "not-the-password");
        let port = replica.stat("master_port");
        let port = u16::try_from(port).expect("a port fits a u16");
        let master = self.server_at(port);
        master.run(&["CLIENT", "KILL", "TYPE", "replica"]);
        self.expect(|_| match replica.master_link().as_deref() {
            Some("down") => Ok(()),
            status => Err(format!("the replica's link is `{status:?}`")),
        });
    }

    /// Undoes [`cut_replication`](Self::cut_replication); returns when the replica is in sync.
    #[track_caller]
    pub fn heal_replication(&self, replica: &RedisServer) {
        replica.set_config("masterauth", ADMIN_PASSWORD);
        assert!(
            replica.wait_for_master(SETTLE_LIMIT),
            "`{}` does not connect to its master",
            replica.addr()
        );
    }

    /// The node of this shard that serves its slots according to all running nodes.
    pub(super) fn serving_in_shard_of(&self, server: &RedisServer) -> Result<&RedisServer, String> {
        let views: Result<Vec<View>, String> = self.awake().map(View::of).collect();
        let views = views?;
        let serves = |view: &View, server: &RedisServer| {
            let node = view.node(server);
            node.is_some_and(|node| node.is_master() && node.has_slots())
        };
        let mut shard = self.shard_of(server).into_iter();
        shard
            .find(|server| views.iter().all(|view| serves(view, server)))
            .ok_or_else(|| "the nodes disagree on the master of the shard".into())
    }
}
