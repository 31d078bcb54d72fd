//! What decides whether a Redlock node may vote, and what clients store on each node about all
//! nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::command::Pipeline;
use super::connection::{Connection, SendOptions};
use super::redis_store::RedisStore;
use super::script_call::ScriptCall;
use super::server::ServerInfo;
use super::server_error;
use super::value::Value;
use crate::moment::Moment;
use crate::store::{Failure, LeaseSpec};

/// How long a node that may have forgotten a lease has no vote, at least. The same for every
/// client, because a restarted node cannot tell how long its forgotten leases were. The other nodes
/// tell about longer leases.
pub(crate) const VOTE_DELAY_MIN: Duration = Duration::from_secs(30);

/// What decides whether a node may vote.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    /// The server's process: changes with every restart.
    pub(crate) run_id: Option<String>,
    /// How long it has been running by its own wall clock, which may have been set since.
    pub(crate) uptime: Duration,
    /// The settings it lacks to persist every reply before sending it. Empty: it forgets nothing.
    pub(crate) lacks: Vec<&'static str>,
    pub(crate) stored: StoredNodeInfo,
}

/// What clients have stored on a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredNodeInfo {
    /// The age of each process, by run id. `None` if nothing is stored.
    pub(crate) ages: Option<HashMap<String, Age>>,
    /// How long that stays stored, unless it is written again.
    pub(crate) kept_for: Duration,
    /// The longest ttl of a lease, if any was longer than usual.
    pub(crate) longest_ttl: Duration,
}

/// The age of a process, by the clock of the node that stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    Known(Duration),
    /// Its start is in the future: the clock was set back.
    ClockSetBack,
}

impl RedisStore {
    /// Reads what decides whether this node may vote.
    pub(crate) async fn node_state(
        &self,
        connection: &Connection,
        limit: Moment,
    ) -> Result<NodeState, Failure> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INFO");
        let settings = pipeline.cmd("CONFIG").arg("GET");
        settings.arg("appendfsync").arg("no-appendfsync-on-rewrite");
        self.add_stored_info_commands(&mut pipeline);
        // The scripts of a single server are loaded by the handshake. A user without permission to
        // load scripts sends the text once.
        for (_, script) in self.keys.layout.redlock_scripts().all() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.code());
        }
        let limit = self.command_limit(limit);
        let replies = connection
            .run_all(&pipeline, SendOptions::until(limit))
            .await?;
        let info = part(&replies, 0).as_str().unwrap_or_default();
        let info = ServerInfo::parse(info);
        Ok(NodeState {
            lacks: missing_settings(&info, part(&replies, 1)),
            uptime: info.uptime,
            run_id: info.run_id,
            stored: self.read_stored(replies.get(2..).unwrap_or_default())?,
        })
    }

    /// Reads what clients have stored on this node.
    pub(crate) async fn stored_node_info(
        &self,
        connection: &Connection,
        limit: Moment,
    ) -> Result<StoredNodeInfo, Failure> {
        let mut pipeline = Pipeline::new();
        self.add_stored_info_commands(&mut pipeline);
        let limit = self.command_limit(limit);
        let replies = connection
            .run_all(&pipeline, SendOptions::until(limit))
            .await?;
        self.read_stored(&replies)
    }

    fn add_stored_info_commands(&self, pipeline: &mut Pipeline) {
        let (longest_ttl, nodes) = (self.keys.longest_ttl(), self.keys.nodes());
        pipeline.cmd("GET").arg(longest_ttl.as_str());
        pipeline.cmd("HGETALL").arg(nodes.as_str());
        pipeline.cmd("PTTL").arg(nodes.as_str());
        pipeline.cmd("TIME");
    }

    fn read_stored(&self, replies: &[Value]) -> Result<StoredNodeInfo, Failure> {
        let longest_ttl = part(replies, 0);
        for reply in replies.iter().take(4) {
            if let Value::Error(text) = reply {
                let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
                return Err(server_error::from_reply(&self.target(), code, detail));
            }
        }
        let longest_ms = longest_ttl.as_int().unwrap_or(0);
        let kept_ms = part(replies, 2).as_int().unwrap_or(0);
        let now_us = part(replies, 3).as_server_time_us().unwrap_or(0);
        Ok(StoredNodeInfo {
            ages: ages(part(replies, 1), now_us / 1_000),
            kept_for: Duration::from_millis(kept_ms.try_into().unwrap_or(0)),
            longest_ttl: Duration::from_millis(longest_ms.try_into().unwrap_or(0)),
        })
    }

    /// Stores the ages of these processes on this node, except those it knows.
    pub(crate) async fn store_ages(
        &self,
        connection: &Connection,
        ages: &[(String, Duration)],
        limit: Moment,
    ) -> Result<(), Failure> {
        let pairs = ages.iter();
        let pairs = pairs.map(|(run_id, age)| [run_id.clone(), age.as_millis().to_string()]);
        let script = &self.keys.layout.redlock_scripts().nodes;
        let limit = self.command_limit(limit);
        let call = ScriptCall::new(script)
            .key(self.keys.nodes())
            .args(pairs.flatten());
        let kept = connection.script(&call, SendOptions::until(limit));
        kept.await.map(|_| ())
    }

    /// Stores on this node that leases may be as long as this one, if that is longer than usual.
    pub(crate) async fn store_longest_ttl(
        self: &Arc<Self>,
        lease: &LeaseSpec,
        limit: Moment,
    ) -> Result<(), Failure> {
        if lease.ttl <= VOTE_DELAY_MIN {
            return Ok(());
        }
        let limit = self.command_limit(limit);
        let connection = self.connection(limit).await?;
        let script = &self.keys.layout.redlock_scripts().longest_ttl;
        let call = ScriptCall::new(script)
            .key(self.keys.longest_ttl())
            .arg(lease.ttl.as_millis());
        let kept = connection.script(&call, SendOptions::until(limit));
        kept.await.map(|_| ())
    }
}

fn part(replies: &[Value], at: usize) -> &Value {
    replies.get(at).unwrap_or(&Value::Nil)
}

/// The settings that a node lacks to persist everything. What the user may not read counts as
/// missing.
fn missing_settings(info: &ServerInfo, settings: &Value) -> Vec<&'static str> {
    let settings = settings.as_array().unwrap_or_default();
    let is = |name: &str, wanted: &str| {
        let mut pairs = settings.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0].as_str() == Some(name));
        pair.is_some_and(|pair| pair[1].as_str() == Some(wanted))
    };
    let checks = [
        (info.has_aof, "`appendonly yes`"),
        (is("appendfsync", "always"), "`appendfsync always`"),
        (
            is("no-appendfsync-on-rewrite", "no"),
            "`no-appendfsync-on-rewrite no`",
        ),
        (info.never_evicts(), "`maxmemory-policy noeviction`"),
    ];
    let missing = checks.into_iter().filter(|(is_set, _)| !is_set);
    missing.map(|(_, setting)| setting).collect()
}

/// Reads the table of starts.
fn ages(table: &Value, now_ms: u64) -> Option<HashMap<String, Age>> {
    let table = table.as_array().filter(|table| !table.is_empty())?;
    let age = |pair: &[Value]| {
        let started_ms = u64::try_from(pair[1].as_int()?).ok()?;
        let age = now_ms.checked_sub(started_ms).map(Duration::from_millis);
        let age = age.map_or(Age::ClockSetBack, Age::Known);
        Some((pair[0].as_str()?.to_owned(), age))
    };
    Some(table.chunks_exact(2).filter_map(age).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPING: &str = "aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";

    fn settings(fsync: &str, on_rewrite: &str) -> Value {
        let words = [
            "no-appendfsync-on-rewrite",
            on_rewrite,
            "appendfsync",
            fsync,
        ];
        Value::Array(words.map(|word| Value::Bytes(word.into())).to_vec())
    }

    fn lacks(info: &str, settings: &Value) -> Vec<&'static str> {
        missing_settings(&ServerInfo::parse(info), settings)
    }

    #[test]
    fn a_node_keeps_everything_only_if_every_setting_says_so() {
        let kept = settings("always", "no");
        assert!(lacks(KEEPING, &kept).is_empty());
        let evicting = "aof_enabled:1\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n";
        assert_eq!(lacks(evicting, &kept), ["`maxmemory-policy noeviction`"]);
        let full = "aof_enabled:1\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n";
        assert!(lacks(full, &kept).is_empty());
        let unlimited = "aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n";
        assert!(lacks(unlimited, &kept).is_empty());
        let on_rewrite = settings("always", "yes");
        assert_eq!(
            lacks(KEEPING, &on_rewrite),
            ["`no-appendfsync-on-rewrite no`"]
        );
        let each_second = settings("everysec", "no");
        assert_eq!(lacks(KEEPING, &each_second), ["`appendfsync always`"]);
    }

    #[test]
    fn what_is_not_known_is_not_kept() {
        let kept = settings("always", "no");
        assert_eq!(
            lacks("", &kept),
            ["`appendonly yes`", "`maxmemory-policy noeviction`"]
        );
        let refused = Value::Error("NOPERM".into());
        let unknown = ["`appendfsync always`", "`no-appendfsync-on-rewrite no`"];
        assert_eq!(lacks(KEEPING, &refused), unknown);
    }

    #[test]
    fn a_start_in_the_future_is_no_age() {
        let words = ["a", "1000", "b", "9000"].map(|word| Value::Bytes(word.into()));
        let table = ages(&Value::Array(words.to_vec()), 5_000).unwrap();
        assert_eq!(table["a"], Age::Known(Duration::from_secs(4)));
        assert_eq!(table["b"], Age::ClockSetBack);
        assert!(ages(&Value::Array(Vec::new()), 5_000).is_none());
    }
}
