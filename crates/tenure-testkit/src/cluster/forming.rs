//! Forms a cluster from separate nodes.

use std::time::Duration;

use super::Cluster;
use super::slot::SLOTS;

impl Cluster {
    /// Assigns the slots, introduces all nodes to each other and assigns each replica to its master.
    #[track_caller]
    pub(super) fn form(&self) {
        self.share_slots();
        self.introduce_all();
        self.expect(Self::have_met);
        self.assign_replicas();
        self.expect(Self::is_ok);
    }

    /// Changes the node timeout until the node is restarted.
    #[track_caller]
    pub(super) fn set_node_timeout(&self, timeout: Duration) {
        let millis = timeout.as_millis().to_string();
        for server in &self.servers {
            server.set_config("cluster-node-timeout", &millis);
        }
    }

    #[track_caller]
    fn share_slots(&self) {
        let first = |index: usize| index * usize::from(SLOTS) / self.masters;
        for (index, server) in self.servers.iter().enumerate() {
            // Nodes with equal epochs would have to resolve the conflict later.
            let epoch = (index + 1).to_string();
            server.run(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            if index < self.masters {
                let (first, last) = (first(index), first(index + 1) - 1);
                let (first, last) = (first.to_string(), last.to_string());
                server.run(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
    }

    /// Introduces every node to every other: gossip alone would take seconds.
    #[track_caller]
    fn introduce_all(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            let mut client = server.client();
            for other in &self.servers[index + 1..] {
                let port = other.peer_port().to_string();
                client.command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
            }
        }
    }

    #[track_caller]
    fn assign_replicas(&self) {
        for (index, server) in self.servers.iter().enumerate().skip(self.masters) {
            let master = &self.servers[index % self.masters];
            let id = master.run(&["CLUSTER", "MYID"]);
            server.run(&["CLUSTER", "REPLICATE", id.text()]);
        }
    }
}
