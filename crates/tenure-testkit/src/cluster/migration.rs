//! Moves a slot from one master to another, at the pace of the test.

use super::Cluster;
use crate::RedisServer;
use crate::mutex::lock;
use crate::server::{ADMIN_PASSWORD, ADMIN_USER};

/// Keys that one `MIGRATE` moves.
const KEYS_PER_STEP: &str = "100";
/// On a busy machine the other server may not run for seconds. Shorter than the kit's own timeout,
/// so that a failed test shows the server's error.
const MIGRATE_LIMIT_MS: &str = "15000";

/// A slot being migrated; see [`Cluster::begin_migration`].
///
/// During the migration the source replies `ASK` for keys that it does not have, moved or new, and
/// the target accepts them only after `ASKING`. Both reply `TRYAGAIN` to commands on several keys of
/// which some are missing. Dropping this leaves the slot as it is.
#[derive(Debug)]
#[must_use = "the migration stays open until `finish`"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    source: &'a RedisServer,
    target: &'a RedisServer,
}

impl Cluster {
    /// Begins to move a slot to the master `to`; no key has moved yet.
    #[track_caller]
    pub fn begin_migration<'a>(&'a self, slot: u16, to: &RedisServer) -> Migration<'a> {
        let migration = Migration {
            cluster: self,
            slot,
            source: self.master_of_slot(slot),
            target: self.server_at(to.port()),
        };
        // The target first: no client may be redirected to a node that does not expect it.
        migration.set_slot(migration.target, "IMPORTING", migration.source);
        migration.set_slot(migration.source, "MIGRATING", migration.target);
        migration
    }

    /// Moves a slot with all its keys to the master `to`, and returns when all nodes know.
    #[track_caller]
    pub fn migrate_slot(&self, slot: u16, to: &RedisServer) {
        self.begin_migration(slot, to).finish();
    }
}

impl<'a> Migration<'a> {
    /// The current master of the slot.
    pub fn source(&self) -> &'a RedisServer {
        self.source
    }

    /// The future master of the slot.
    pub fn target(&self) -> &'a RedisServer {
        self.target
    }

    /// Moves one key; `false` if the source does not have it.
    #[track_caller]
    pub fn move_key(&self, key: &str) -> bool {
        self.migrate(&[key]) == "OK"
    }

    /// Moves all keys that the source still has, in batches, and returns how many.
    #[track_caller]
    pub fn move_keys(&self) -> usize {
        let slot = self.slot.to_string();
        let mut moved = 0;
        loop {
            let words = ["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_PER_STEP];
            let reply = self.source.run(&words);
            let keys: Vec<&str> = reply.array().iter().map(|key| key.text()).collect();
            if keys.is_empty() {
                return moved;
            }
            self.migrate(&keys);
            moved += keys.len();
        }
    }

    /// Moves the remaining keys and makes the target the slot's master on all nodes.
    #[track_caller]
    pub fn finish(self) {
        self.move_keys();
        let _alone = lock(&self.cluster.ending_migration);
        self.cluster.expect(|_| self.target_knows_epoch());
        // The target first: if only the target knew, it would win; if only the source knew, no node
        // would serve the slot.
        self.set_slot(self.target, "NODE", self.target);
        self.set_slot(self.source, "NODE", self.target);
        for server in self.cluster.awake() {
            // Speeds up the gossip. Replicas refuse the command and rely on gossip.
            let _ = self.try_set_slot(server, "NODE", self.target);
        }
        self.cluster
            .expect(|cluster| cluster.all_see(self.slot, Some(self.target)));
    }

    /// The target raises its epoch above all that it knows. If it did not know the source's epoch, the
    /// source would claim the slot back, and the target would drop the keys.
    fn target_knows_epoch(&self) -> Result<(), String> {
        let known = epoch(self.target, "cluster_current_epoch");
        let needed = epoch(self.source, "cluster_my_epoch");
        if known < needed {
            return Err(format!("the target knows epoch {known}, not yet {needed}"));
        }
        Ok(())
    }

    #[track_caller]
    fn migrate(&self, keys: &[&str]) -> String {
        let port = self.target.peer_port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_LIMIT_MS];
        let login = ["AUTH2", ADMIN_USER, ADMIN_PASSWORD, "KEYS"];
        let words = [&head[..], &login, keys].concat();
        let _alone = lock(&self.cluster.migrating);
        self.source.run(&words).text().into()
    }

    #[track_caller]
    fn set_slot(&self, at: &RedisServer, state: &str, node: &RedisServer) {
        if let Err(error) = self.try_set_slot(at, state, node) {
            panic!(
                "slot `{}`: `{state}` at `{}`: {error}",
                self.slot,
                at.addr()
            );
        }
    }

    fn try_set_slot(
        &self,
        at: &RedisServer,
        state: &str,
        node: &RedisServer,
    ) -> Result<(), String> {
        let id = node.try_run(&["CLUSTER", "MYID"])?;
        let slot = self.slot.to_string();
        at.try_run(&["CLUSTER", "SETSLOT", &slot, state, id.text()])?;
        Ok(())
    }
}

#[track_caller]
fn epoch(server: &RedisServer, which: &str) -> u64 {
    let info = server.run(&["CLUSTER", "INFO"]);
    let mut lines = info.text().lines();
    let found = lines.find_map(|line| line.strip_prefix(which)?.strip_prefix(':'));
    let epoch = found.and_then(|epoch| epoch.trim().parse().ok());
    epoch.unwrap_or_else(|| panic!("`{}` does not report `{which}`", server.addr()))
}
