//! The cluster as one node sees it.

use std::ops::RangeInclusive;

use super::Cluster;
use crate::RedisServer;
use crate::server::field_of;

/// What one node knows about all nodes, including itself.
#[derive(Debug)]
pub(super) struct View {
    nodes: Vec<Node>,
}

/// One line of `CLUSTER NODES`.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) epoch: u64,
    flags: String,
    is_connected: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl View {
    /// Reads the view of a node.
    pub(super) fn of(server: &RedisServer) -> Result<Self, String> {
        let reply = server.try_run(&["CLUSTER", "NODES"])?;
        let nodes = reply.text().lines().map(node_of);
        let nodes: Option<Vec<Node>> = nodes.collect();
        let nodes = nodes.ok_or_else(|| format!("not a list of nodes: `{}`", reply.text()))?;
        Ok(Self { nodes })
    }

    pub(super) fn node(&self, server: &RedisServer) -> Option<&Node> {
        self.nodes.iter().find(|node| node.port == server.port())
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<&Node> {
        let serves = |node: &&Node| node.slots.iter().any(|range| range.contains(&slot));
        self.nodes.iter().find(serves)
    }

    /// Each range of slots with its owner, sorted: equal for nodes that agree.
    fn owners(&self) -> Vec<(u16, u16, &str)> {
        let ranges = self.nodes.iter().flat_map(|node| {
            let slots = node.slots.iter();
            slots.map(|range| (*range.start(), *range.end(), &*node.id))
        });
        let mut owners: Vec<_> = ranges.collect();
        owners.sort_unstable();
        owners
    }
}

impl Node {
    /// Whether it is connected, its handshake is over and it has no failure flags.
    pub(super) fn is_healthy(&self) -> bool {
        let is_failure = |flag| matches!(flag, "fail" | "fail?" | "handshake" | "noaddr");
        self.is_connected && !self.flags.split(',').any(is_failure)
    }

    pub(super) fn is_master(&self) -> bool {
        self.flags.split(',').any(|flag| flag == "master")
    }

    pub(super) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }
}

impl Cluster {
    /// `Err` describes what is wrong.
    pub(super) fn is_ok(&self) -> Result<(), String> {
        let awake: Vec<&RedisServer> = self.awake().collect();
        let views: Result<Vec<View>, String> = awake.iter().map(|one| View::of(one)).collect();
        let views = views?;
        for (server, view) in awake.iter().zip(&views) {
            let healthy = sees_all_healthy(view, &awake).and_then(|()| reports_ok(server));
            healthy.map_err(|error| format!("node `{}`: {error}", server.addr()))?;
        }
        for server in &awake {
            let is_master = |view: &View| view.node(server).is_some_and(Node::is_master);
            if views
                .iter()
                .any(|view| is_master(view) != is_master(&views[0]))
            {
                return Err(format!(
                    "the nodes disagree on the role of `{}`",
                    server.addr()
                ));
            }
        }
        if views.iter().any(|view| view.owners() != views[0].owners()) {
            return Err("the nodes disagree on the slots".into());
        }
        Ok(())
    }

    /// Whether all running nodes have met.
    pub(super) fn have_met(&self) -> Result<(), String> {
        let awake: Vec<&RedisServer> = self.awake().collect();
        awake
            .iter()
            .try_for_each(|server| sees_all_healthy(&View::of(server)?, &awake))
    }
}

fn sees_all_healthy(view: &View, servers: &[&RedisServer]) -> Result<(), String> {
    for server in servers {
        let addr = server.addr();
        let node = view.node(server);
        let node = node.ok_or_else(|| format!("does not know `{addr}`"))?;
        if !node.is_healthy() {
            return Err(format!("sees `{addr}` as `{}`", node.flags));
        }
    }
    Ok(())
}

fn reports_ok(server: &RedisServer) -> Result<(), String> {
    let info = server.try_run(&["CLUSTER", "INFO"])?;
    let state = field_of(info.text(), "cluster_state").unwrap_or_default();
    if state != "ok" {
        return Err(format!("its state is `{state}`"));
    }
    let info = server.try_run(&["INFO", "replication"])?;
    match field_of(info.text(), "master_link_status") {
        None | Some("up") => Ok(()),
        Some(status) => Err(format!("its link to its master is `{status}`")),
    }
}

fn node_of(line: &str) -> Option<Node> {
    let mut words = line.split(' ');
    let id = words.next()?.into();
    let addr = words.next()?.split('@').next()?;
    let port = addr.rsplit(':').next()?.parse().ok()?;
    let flags = words.next()?.into();
    // Skips its master, ping and pong.
    let epoch = words.nth(3)?.parse().ok()?;
    let is_connected = words.next()? == "connected";
    // `[slot->-id]` and `[slot-<-id]` are slots being migrated.
    let slots = words.filter(|word| !word.starts_with('['));
    let slots: Option<Vec<_>> = slots.map(range_of).collect();
    Some(Node {
        id,
        port,
        epoch,
        flags,
        is_connected,
        slots: slots?,
    })
}

fn range_of(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
