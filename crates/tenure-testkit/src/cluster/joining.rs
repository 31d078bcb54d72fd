//! Adds a node to a running cluster and removes it again.

use super::Cluster;
use crate::RedisServer;

impl Cluster {
    /// Adds the [latecomer](super::ClusterBuilder::latecomer) as a replica of the first shard, and
    /// returns it when all nodes know it and it is in sync. It starts empty, with a new id.
    #[track_caller]
    pub fn join_latecomer(&self) -> &RedisServer {
        let late = self.latecomer();
        late.restart_empty();
        for founder in self.founders() {
            let port = founder.peer_port().to_string();
            late.run(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        self.expect(Self::have_met);
        let master = self.serving_in_shard_of(late);
        let master = master.unwrap_or_else(|error| self.fail(&error));
        let id = master.run(&["CLUSTER", "MYID"]);
        late.run(&["CLUSTER", "REPLICATE", id.text()]);
        self.expect(Self::is_ok);
        late
    }

    /// Kills the latecomer, which must not be a master, and makes all other nodes forget it.
    #[track_caller]
    pub fn dismiss_latecomer(&self) {
        let late = self.latecomer();
        let id = late.run(&["CLUSTER", "MYID"]);
        late.kill();
        for server in self.awake() {
            // Refused by a node that did not know it.
            let _ = server.try_run(&["CLUSTER", "FORGET", id.text()]);
        }
        self.expect(Self::is_ok);
    }

    /// The nodes that formed the cluster.
    pub(super) fn founders(&self) -> &[RedisServer] {
        let count = self.servers.len() - usize::from(self.has_latecomer);
        &self.servers[..count]
    }

    #[track_caller]
    fn latecomer(&self) -> &RedisServer {
        assert!(
            self.has_latecomer,
            "the cluster was built without a latecomer"
        );
        self.servers.last().expect("a cluster has nodes")
    }
}
