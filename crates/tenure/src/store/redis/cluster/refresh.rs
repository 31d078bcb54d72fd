//! Fetches the slot map: at the start, and when it is outdated.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::slot_map::{self, SlotMap, SlotRange};
use super::{Cluster, lock};
use crate::backoff::CONNECT_PAUSE;
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::store::Failure;
use crate::store::redis::command::cmd;
use crate::store::redis::connection::SendOptions;
use crate::store::redis::node::Node;

/// How long one fetch may take.
const LIMIT: Duration = Duration::from_secs(3);

impl Cluster {
    /// Connects, so that a wrong address or password is reported at once. An unreachable node does
    /// not keep us from the others.
    pub(in crate::store::redis) async fn connect(&self, limit: Moment) -> Result<(), Failure> {
        self.refresh(limit).await?;
        let mut reaching = JoinSet::new();
        for node in self.nodes() {
            reaching.spawn(async move {
                let reached = node.connect(limit).await;
                (node, reached)
            });
        }
        let (mut reached, mut failed) = (0, Vec::new());
        while let Some(outcome) = reaching.join_next().await {
            match outcome {
                Ok((_, Ok(()))) => reached += 1,
                Ok((_, Err(failure))) if !failure.transient => return Err(failure),
                Ok((_, Err(failure))) => failed.push(failure),
                Err(_) => {}
            }
        }
        if reached > 0 || failed.is_empty() {
            return Ok(());
        }
        Err(no_node(
            "no node of the cluster can be reached at the address that it announces; check \
             `cluster-announce-ip` and `cluster-announce-hostname`",
            &failed,
        ))
    }

    /// Fetches the whole map from any node that has it.
    async fn refresh(&self, limit: Moment) -> Result<(), Failure> {
        let mut failed = Vec::new();
        for node in self.refresh_sources() {
            let limit = limit.min(self.clock.now() + node.server.target.response_timeout);
            match fetch_slots(&node, limit).await {
                Ok(ranges) => {
                    self.install(&ranges, &node);
                    return Ok(());
                }
                Err(failure) => failed.push(failure),
            }
        }
        Err(match failed.as_slice() {
            [only] => only.share(),
            failed => no_node("no node returned the slot map of the cluster", failed),
        })
    }

    /// The nodes to fetch from, those most likely to know and to reply first.
    fn refresh_sources(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<Arc<Node>> = lock(&self.last_redirect_target)
            .take()
            .into_iter()
            .collect();
        let is_live = |node: &Arc<Node>| node.commands.live().is_some();
        let (live, silent): (Vec<_>, Vec<_>) = self.nodes().into_iter().partition(is_live);
        nodes.extend(live);
        nodes.extend(self.seeds().iter().cloned());
        nodes.extend(silent);
        let mut asked: Vec<Arc<Node>> = Vec::with_capacity(nodes.len());
        for node in nodes {
            if !asked.iter().any(|known| Arc::ptr_eq(known, &node)) {
                asked.push(node);
            }
        }
        asked
    }

    fn install(&self, ranges: &[SlotRange], asked: &Arc<Node>) {
        let mut known = self.nodes();
        known.extend(self.seeds().iter().chain([asked]).cloned());
        let new = SlotMap::of(ranges, &asked.server.target, &known, |target| {
            self.new_node(target)
        });
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let changed = !map.agrees_with(&new);
        let old = std::mem::replace(&mut *map, new);
        drop(map);
        // Nodes that have left the cluster are dropped here, after unlocking.
        drop(old);
        if changed {
            self.channels.recheck();
        }
    }
}

/// Fetches the map again whenever it was found outdated.
pub(super) async fn keep_refreshed(cluster: Arc<Cluster>) {
    loop {
        cluster.outdated.notified().await;
        let limit = cluster.clock.now() + LIMIT;
        if let Err(failure) = cluster.refresh(limit).await {
            tracing::debug!(error = %failure.error, "redis.unreachable");
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
}

async fn fetch_slots(node: &Node, limit: Moment) -> Result<Vec<SlotRange>, Failure> {
    let connection = node.commands.connection(limit).await?;
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = connection.run(&command, SendOptions::until(limit)).await?;
    let ranges = slot_map::read(&reply)
        .ok_or_else(|| Failure::refused(reply.unexpected("`CLUSTER SLOTS`")))?;
    if ranges.is_empty() {
        return Err(Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "`{}` does not know any node that serves a slot: is it part of the cluster yet?",
                node.server.target
            ),
        )));
    }
    Ok(ranges)
}

/// All failures in one. It has the kind of the first transient one, and is transient if any is.
fn no_node(what: &str, failed: &[Failure]) -> Failure {
    let reasons: Vec<String> = failed.iter().map(|it| it.error.to_string()).collect();
    let transient = failed.iter().find(|failure| failure.transient);
    let kind = transient.or(failed.first()).map(|it| it.error.kind());
    let message = format!("{what}: {}", reasons.join("; "));
    Failure {
        error: Error::new(kind.unwrap_or(ErrorKind::Unavailable), message),
        transient: transient.is_some(),
        in_flight: None,
    }
}
