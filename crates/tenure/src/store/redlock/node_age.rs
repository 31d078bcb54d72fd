//! How long each node runs, as far as this client can know. That decides when a node that may have
//! forgotten a lease votes again.
//!
//! What a server says of its own age is the difference of two readings of its wall clock: a server
//! that started an hour behind and was corrected says that it has run for an hour. So that counts
//! only where nothing better is known:
//!
//! - A client that saw another process at the node before counts from its own first sight of the new
//!   one, by its own clock.
//! - Clients keep on every node since when the processes of all nodes run. The youngest age that any
//!   node tells counts. A process that a node does not list was never seen before.
//!
//! Nothing makes a node younger than this client's own first sight of it: it never waits for longer
//! than one rest from then on.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;

use super::node::lock;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::{Age, REST_MIN, StoredNodeInfo};

/// How many processes are remembered beside the current ones.
const PROCESSES_MAX: usize = 64;
/// What is kept on nodes for 30 days is kept again after a day.
const KEPT_FOR_MIN: Duration = Duration::from_secs(29 * 24 * 60 * 60);
const KEEP_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct NodeAges {
    /// The client's own longest ttl.
    longest_ttl: Duration,
    seen: Mutex<NodeAgesState>,
    /// A process is new.
    pub(super) news: Notify,
}

#[derive(Default)]
struct NodeAgesState {
    /// By run id.
    processes: HashMap<String, ServerProcess>,
    nodes: Vec<NodeHistory>,
}

struct ServerProcess {
    /// When this client first heard of it: it runs since then at least.
    first: Moment,
    /// Since when it runs by its own wall clock.
    started: Moment,
    /// Whether this client saw another process in its place before.
    is_successor: bool,
    /// Whether all nodes that can be reached were asked about it.
    is_settled: bool,
}

#[derive(Default)]
struct NodeHistory {
    /// The process there.
    run_id: Option<String>,
    /// What clients keep there, and when it was read.
    told: Option<(Moment, StoredNodeInfo)>,
    /// The processes that are known there, and since when.
    kept: Option<(Moment, Vec<String>)>,
}

impl NodeAges {
    pub(super) fn new(nodes: usize, longest_ttl: Duration) -> Self {
        let nodes = (0..nodes).map(|_| NodeHistory::default()).collect();
        let processes = HashMap::new();
        Self {
            longest_ttl,
            seen: Mutex::new(NodeAgesState { processes, nodes }),
            news: Notify::new(),
        }
    }

    /// Takes note of the process at a node, which says that it has run for so long.
    pub(super) fn see(&self, node: usize, run_id: &str, uptime: Duration, now: Moment) {
        let mut seen = lock(&self.seen);
        let before = seen.nodes[node].run_id.replace(run_id.to_owned());
        if seen.processes.contains_key(run_id) {
            return;
        }
        seen.forget_the_ended();
        let process = ServerProcess {
            first: now,
            started: now.before(uptime),
            is_successor: before.is_some(),
            is_settled: false,
        };
        seen.processes.insert(run_id.to_owned(), process);
        drop(seen);
        self.news.notify_one();
    }

    /// Takes note of what clients keep on a node.
    pub(super) fn hear(&self, node: usize, told: StoredNodeInfo, now: Moment) {
        let mut seen = lock(&self.seen);
        let node = &mut seen.nodes[node];
        let is_fresh = told.kept_for >= KEPT_FOR_MIN;
        if let Some(ages) = told.ages.as_ref().filter(|_| is_fresh) {
            let known = ages.iter().filter(|(_, age)| **age != Age::ClockSetBack);
            let known = known.map(|(run_id, _)| run_id.clone()).collect();
            node.kept = Some((now, known));
        }
        node.told = Some((now, told));
    }

    /// All nodes that can be reached were asked: what they say decides.
    pub(super) fn settle(&self) {
        let mut seen = lock(&self.seen);
        let processes = seen.processes.values_mut();
        processes.for_each(|process| process.is_settled = true);
    }

    /// Whether there is a process that not all nodes were asked about.
    pub(super) fn is_unsettled(&self) -> bool {
        let seen = lock(&self.seen);
        seen.processes.values().any(|process| !process.is_settled)
    }

    /// Since when a process runs at least; none if it is not known.
    pub(super) fn started(&self, run_id: &str) -> Option<Moment> {
        lock(&self.seen).started(run_id)
    }

    /// How long a node that may have forgotten a lease has no vote. A process that has restarted has
    /// forgotten how long its leases were, so no client may rest for less than any other may need.
    pub(super) fn rest(&self) -> Duration {
        if bug(Bug::RedlockRestByOwnTtl) {
            return self.longest_ttl;
        }
        let told = self.longest_told().map_or(Duration::ZERO, |(_, ttl)| ttl);
        self.longest_ttl.max(REST_MIN).max(told)
    }

    /// The node that tells of the longest leases, and how long they are.
    pub(super) fn longest_told(&self) -> Option<(usize, Duration)> {
        let seen = lock(&self.seen);
        let told = seen.nodes.iter().enumerate();
        let told = told.filter_map(|(node, it)| Some((node, it.told.as_ref()?.1.longest_ttl)));
        told.max_by_key(|(_, ttl)| *ttl)
    }

    /// What is to be kept on a node: for how long each current process runs. None if it is known
    /// there.
    pub(super) fn to_keep(&self, node: usize, now: Moment) -> Option<Vec<(String, Duration)>> {
        let seen = lock(&self.seen);
        let current = seen.nodes.iter().filter_map(|node| node.run_id.as_ref());
        let settled = current.filter(|run_id| {
            let process = seen.processes.get(*run_id);
            process.is_some_and(|process| process.is_settled)
        });
        let current: Vec<&String> = settled.collect();
        let is_kept = seen.nodes[node].kept.as_ref().is_some_and(|(at, kept)| {
            let is_fresh = now.saturating_since(*at) < KEEP_AGAIN;
            is_fresh && current.iter().all(|run_id| kept.contains(run_id))
        });
        if current.is_empty() || is_kept {
            return None;
        }
        let age = |run_id: &String| now.saturating_since(seen.started(run_id).unwrap_or(now));
        let ages = current
            .into_iter()
            .map(|run_id| (run_id.clone(), age(run_id)));
        Some(ages.collect())
    }

    /// These are kept on a node now.
    pub(super) fn kept(&self, node: usize, ages: Vec<(String, Duration)>, now: Moment) {
        let run_ids = ages.into_iter().map(|(run_id, _)| run_id).collect();
        lock(&self.seen).nodes[node].kept = Some((now, run_ids));
    }
}

impl NodeAgesState {
    fn started(&self, run_id: &str) -> Option<Moment> {
        let process = self.processes.get(run_id)?;
        if bug(Bug::RedlockRestByUptime) {
            return Some(process.started);
        }
        if process.is_successor || !process.is_settled {
            return Some(process.first);
        }
        if bug(Bug::RedlockSightingsIgnored) {
            return Some(process.started);
        }
        let told = self.nodes.iter().filter_map(|node| node.told.as_ref());
        let by_told = told.filter_map(|(read, told)| {
            // A node where nothing is kept says nothing.
            let ages = told.ages.as_ref()?;
            Some(match ages.get(run_id) {
                Some(Age::Known(age)) => read.before(*age),
                Some(Age::ClockSetBack) | None => process.first,
            })
        });
        let youngest = by_told.fold(process.started, Moment::max);
        Some(youngest.min(process.first))
    }

    fn forget_the_ended(&mut self) {
        if self.processes.len() < PROCESSES_MAX {
            return;
        }
        let nodes = &self.nodes;
        let is_current = |run_id: &str| {
            let mut run_ids = nodes.iter().filter_map(|node| node.run_id.as_deref());
            run_ids.any(|current| current == run_id)
        };
        self.processes.retain(|run_id, _| is_current(run_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1) + Duration::from_secs(100_000 + seconds)
    }

    fn sightings() -> NodeAges {
        NodeAges::new(3, REST_MIN)
    }

    fn told(ages: &[(&str, Age)]) -> StoredNodeInfo {
        let ages = ages.iter().map(|(id, age)| ((*id).to_owned(), *age));
        StoredNodeInfo {
            ages: Some(ages.collect()),
            ..StoredNodeInfo::default()
        }
    }

    fn known(seconds: u64) -> Age {
        Age::Known(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_client_ever_goes_by_what_nodes_say_of_themselves() {
        let sightings = sightings();
        sightings.see(0, "a", HOUR, at(0));
        sightings.hear(0, StoredNodeInfo::default(), at(0));
        assert_eq!(sightings.started("a"), Some(at(0)), "not settled yet");
        sightings.settle();
        assert_eq!(sightings.started("a"), Some(at(0).before(HOUR)));
    }

    #[test]
    fn a_process_in_the_place_of_another_counts_from_its_first_sight() {
        let sightings = sightings();
        sightings.see(0, "a", HOUR, at(0));
        sightings.see(0, "b", HOUR, at(10));
        sightings.hear(1, told(&[("a", known(7_200)), ("b", known(3_600))]), at(10));
        sightings.settle();
        assert_eq!(sightings.started("b"), Some(at(10)));
        sightings.see(0, "b", HOUR, at(20));
        assert_eq!(sightings.started("b"), Some(at(10)), "a second connection");
    }

    #[test]
    fn the_youngest_age_that_any_node_tells_counts() {
        let sightings = sightings();
        sightings.see(0, "a", HOUR, at(0));
        sightings.hear(1, told(&[("a", known(60))]), at(0));
        sightings.hear(2, told(&[("a", known(20))]), at(0));
        sightings.settle();
        assert_eq!(
            sightings.started("a"),
            Some(at(0).before(Duration::from_secs(20)))
        );
    }

    #[test]
    fn a_process_that_a_node_does_not_list_was_never_seen() {
        let sightings = sightings();
        sightings.see(0, "a", HOUR, at(0));
        sightings.settle();
        // Learned later: it counts all the same.
        sightings.hear(2, told(&[("other", known(3_600))]), at(5));
        assert_eq!(sightings.started("a"), Some(at(0)));
    }

    #[test]
    fn a_clock_that_was_set_back_costs_one_rest_at_most() {
        let sightings = sightings();
        sightings.see(0, "a", HOUR, at(0));
        sightings.hear(1, told(&[("a", Age::ClockSetBack)]), at(0));
        sightings.hear(2, told(&[("a", known(0))]), at(50));
        sightings.settle();
        assert_eq!(sightings.started("a"), Some(at(0)));
        let to_keep = sightings.to_keep(1, at(1)).unwrap();
        assert_eq!(to_keep, [("a".to_owned(), Duration::from_secs(1))]);
    }

    #[test]
    fn what_a_node_knows_is_not_kept_again_until_a_day_has_passed() {
        let sightings = sightings();
        sightings.see(0, "a", HOUR, at(0));
        assert_eq!(sightings.to_keep(1, at(0)), None, "not settled yet");
        sightings.settle();
        let ages = sightings.to_keep(1, at(0)).unwrap();
        assert_eq!(ages, [("a".to_owned(), HOUR)]);
        sightings.kept(1, ages, at(0));
        assert_eq!(sightings.to_keep(1, at(100)), None);
        assert!(sightings.to_keep(1, at(0) + KEEP_AGAIN).is_some());
        sightings.see(1, "b", HOUR, at(200));
        sightings.settle();
        assert_eq!(sightings.to_keep(1, at(200)).unwrap().len(), 2);
    }

    #[test]
    fn a_rest_is_never_shorter_than_any_client_may_need() {
        let short = NodeAges::new(1, Duration::from_secs(2));
        assert_eq!(short.rest(), REST_MIN);
        let long = NodeAges::new(1, Duration::from_secs(50));
        assert_eq!(long.rest(), Duration::from_secs(50));
        let longest_ttl = Duration::from_secs(60);
        let told = StoredNodeInfo {
            longest_ttl,
            ..StoredNodeInfo::default()
        };
        long.hear(0, told, at(0));
        assert_eq!(long.rest(), longest_ttl);
        assert_eq!(long.longest_told(), Some((0, longest_ttl)));
    }
}
