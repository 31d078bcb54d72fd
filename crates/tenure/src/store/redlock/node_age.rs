//! How long each node has been running, as far as this client can know. That decides when a node
//! that may have forgotten a lease votes again.
//!
//! A server computes its uptime from two readings of its wall clock: a server that started with a
//! clock an hour behind, which was then corrected, reports an hour of uptime. So its own report
//! counts only where nothing better is known:
//!
//! - A client that saw another process at the node before counts from when it first saw the new
//!   one, by its own clock.
//! - Clients store on every node since when the processes of all nodes have been running. The
//!   youngest age that any node reports counts. A process that a node does not list was never seen
//!   before.
//!
//! Nothing makes a node younger than when this client first saw it: the client never waits longer
//! than one vote delay from then on.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;

use super::node::lock;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::{Age, StoredNodeInfo, VOTE_DELAY_MIN};

/// How many processes are remembered in addition to the current ones.
const PROCESSES_MAX: usize = 64;
/// Entries are stored on nodes for 30 days, and stored again after a day.
const STORED_FOR_MIN: Duration = Duration::from_secs(29 * 24 * 60 * 60);
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct NodeAges {
    /// The client's own longest ttl.
    longest_ttl: Duration,
    state: Mutex<NodeAgesState>,
    /// A new process was seen.
    pub(super) news: Notify,
}

#[derive(Default)]
struct NodeAgesState {
    /// By run id.
    processes: HashMap<String, ServerProcess>,
    nodes: Vec<NodeHistory>,
}

struct ServerProcess {
    /// When this client first saw it: it has been running since then at least.
    first: Moment,
    /// Since when it has been running by its own wall clock.
    started: Moment,
    /// Whether this client saw another process at this node before.
    is_successor: bool,
    /// Whether all reachable nodes were asked about it.
    is_settled: bool,
}

#[derive(Default)]
struct NodeHistory {
    /// The current process.
    run_id: Option<String>,
    /// What clients have stored there, and when it was read.
    stored: Option<(Moment, StoredNodeInfo)>,
    /// The processes that are stored there, and when that was last seen.
    stored_there: Option<(Moment, Vec<String>)>,
}

impl NodeAges {
    pub(super) fn new(nodes: usize, longest_ttl: Duration) -> Self {
        let nodes = (0..nodes).map(|_| NodeHistory::default()).collect();
        let processes = HashMap::new();
        Self {
            longest_ttl,
            state: Mutex::new(NodeAgesState { processes, nodes }),
            news: Notify::new(),
        }
    }

    /// Notes the process at a node, and the uptime it reports.
    pub(super) fn note_process(&self, node: usize, run_id: &str, uptime: Duration, now: Moment) {
        let mut state = lock(&self.state);
        let before = state.nodes[node].run_id.replace(run_id.to_owned());
        if state.processes.contains_key(run_id) {
            return;
        }
        state.forget_ended();
        let process = ServerProcess {
            first: now,
            started: now.before(uptime),
            is_successor: before.is_some(),
            is_settled: false,
        };
        state.processes.insert(run_id.to_owned(), process);
        drop(state);
        self.news.notify_one();
    }

    /// Notes what clients have stored on a node.
    pub(super) fn note_stored(&self, node: usize, stored: StoredNodeInfo, now: Moment) {
        let mut state = lock(&self.state);
        let node = &mut state.nodes[node];
        let is_fresh = stored.kept_for >= STORED_FOR_MIN;
        if let Some(ages) = stored.ages.as_ref().filter(|_| is_fresh) {
            let known = ages.iter().filter(|(_, age)| **age != Age::ClockSetBack);
            let known = known.map(|(run_id, _)| run_id.clone()).collect();
            node.stored_there = Some((now, known));
        }
        node.stored = Some((now, stored));
    }

    /// All reachable nodes were asked: their replies decide.
    pub(super) fn mark_settled(&self) {
        let mut state = lock(&self.state);
        let processes = state.processes.values_mut();
        processes.for_each(|process| process.is_settled = true);
    }

    /// Whether there is a process that not all nodes were asked about.
    pub(super) fn is_unsettled(&self) -> bool {
        let state = lock(&self.state);
        state.processes.values().any(|process| !process.is_settled)
    }

    /// Since when a process has been running at least; `None` if it is not known.
    pub(super) fn started(&self, run_id: &str) -> Option<Moment> {
        lock(&self.state).started(run_id)
    }

    /// How long a node that may have forgotten a lease has no vote. A restarted process has
    /// forgotten how long its leases were, so no client may wait for less than any other may need.
    pub(super) fn vote_delay(&self) -> Duration {
        if bug(Bug::RedlockRestByOwnTtl) {
            return self.longest_ttl;
        }
        let stored = self
            .longest_stored_ttl()
            .map_or(Duration::ZERO, |(_, ttl)| ttl);
        self.longest_ttl.max(VOTE_DELAY_MIN).max(stored)
    }

    /// The node that reports the longest leases, and how long they are.
    pub(super) fn longest_stored_ttl(&self) -> Option<(usize, Duration)> {
        let state = lock(&self.state);
        let stored = state.nodes.iter().enumerate();
        let stored =
            stored.filter_map(|(node, it)| Some((node, it.stored.as_ref()?.1.longest_ttl)));
        stored.max_by_key(|(_, ttl)| *ttl)
    }

    /// What to store on a node: the age of each current process. `None` if it is stored already.
    pub(super) fn ages_to_store(
        &self,
        node: usize,
        now: Moment,
    ) -> Option<Vec<(String, Duration)>> {
        let state = lock(&self.state);
        let current = state.nodes.iter().filter_map(|node| node.run_id.as_ref());
        let settled = current.filter(|run_id| {
            let process = state.processes.get(*run_id);
            process.is_some_and(|process| process.is_settled)
        });
        let current: Vec<&String> = settled.collect();
        let is_kept = state.nodes[node]
            .stored_there
            .as_ref()
            .is_some_and(|(at, stored_there)| {
                let is_fresh = now.saturating_since(*at) < STORE_AGAIN_AFTER;
                is_fresh && current.iter().all(|run_id| stored_there.contains(run_id))
            });
        if current.is_empty() || is_kept {
            return None;
        }
        let age = |run_id: &String| now.saturating_since(state.started(run_id).unwrap_or(now));
        let ages = current
            .into_iter()
            .map(|run_id| (run_id.clone(), age(run_id)));
        Some(ages.collect())
    }

    /// These are stored on a node now.
    pub(super) fn note_stored_ages(&self, node: usize, ages: Vec<(String, Duration)>, now: Moment) {
        let run_ids = ages.into_iter().map(|(run_id, _)| run_id).collect();
        lock(&self.state).nodes[node].stored_there = Some((now, run_ids));
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
        let stored = self.nodes.iter().filter_map(|node| node.stored.as_ref());
        let by_told = stored.filter_map(|(read, stored)| {
            // A node without stored ages tells nothing.
            let ages = stored.ages.as_ref()?;
            Some(match ages.get(run_id) {
                Some(Age::Known(age)) => read.before(*age),
                Some(Age::ClockSetBack) | None => process.first,
            })
        });
        let youngest = by_told.fold(process.started, Moment::max);
        Some(youngest.min(process.first))
    }

    fn forget_ended(&mut self) {
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

    fn ages() -> NodeAges {
        NodeAges::new(3, VOTE_DELAY_MIN)
    }

    fn stored(ages: &[(&str, Age)]) -> StoredNodeInfo {
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
        let ages = ages();
        ages.note_process(0, "a", HOUR, at(0));
        ages.note_stored(0, StoredNodeInfo::default(), at(0));
        assert_eq!(ages.started("a"), Some(at(0)), "not settled yet");
        ages.mark_settled();
        assert_eq!(ages.started("a"), Some(at(0).before(HOUR)));
    }

    #[test]
    fn a_process_in_the_place_of_another_counts_from_its_first_sight() {
        let ages = ages();
        ages.note_process(0, "a", HOUR, at(0));
        ages.note_process(0, "b", HOUR, at(10));
        ages.note_stored(
            1,
            stored(&[("a", known(7_200)), ("b", known(3_600))]),
            at(10),
        );
        ages.mark_settled();
        assert_eq!(ages.started("b"), Some(at(10)));
        ages.note_process(0, "b", HOUR, at(20));
        assert_eq!(ages.started("b"), Some(at(10)), "a second connection");
    }

    #[test]
    fn the_youngest_age_that_any_node_tells_counts() {
        let ages = ages();
        ages.note_process(0, "a", HOUR, at(0));
        ages.note_stored(1, stored(&[("a", known(60))]), at(0));
        ages.note_stored(2, stored(&[("a", known(20))]), at(0));
        ages.mark_settled();
        assert_eq!(
            ages.started("a"),
            Some(at(0).before(Duration::from_secs(20)))
        );
    }

    #[test]
    fn a_process_that_a_node_does_not_list_was_never_seen() {
        let ages = ages();
        ages.note_process(0, "a", HOUR, at(0));
        ages.mark_settled();
        // Learned later, but it counts as well.
        ages.note_stored(2, stored(&[("other", known(3_600))]), at(5));
        assert_eq!(ages.started("a"), Some(at(0)));
    }

    #[test]
    fn a_clock_that_was_set_back_costs_one_rest_at_most() {
        let ages = ages();
        ages.note_process(0, "a", HOUR, at(0));
        ages.note_stored(1, stored(&[("a", Age::ClockSetBack)]), at(0));
        ages.note_stored(2, stored(&[("a", known(0))]), at(50));
        ages.mark_settled();
        assert_eq!(ages.started("a"), Some(at(0)));
        let to_store = ages.ages_to_store(1, at(1)).unwrap();
        assert_eq!(to_store, [("a".to_owned(), Duration::from_secs(1))]);
    }

    #[test]
    fn what_a_node_knows_is_not_kept_again_until_a_day_has_passed() {
        let ages = ages();
        ages.note_process(0, "a", HOUR, at(0));
        assert_eq!(ages.ages_to_store(1, at(0)), None, "not settled yet");
        ages.mark_settled();
        let to_store = ages.ages_to_store(1, at(0)).unwrap();
        assert_eq!(to_store, [("a".to_owned(), HOUR)]);
        ages.note_stored_ages(1, to_store, at(0));
        assert_eq!(ages.ages_to_store(1, at(100)), None);
        assert!(ages.ages_to_store(1, at(0) + STORE_AGAIN_AFTER).is_some());
        ages.note_process(1, "b", HOUR, at(200));
        ages.mark_settled();
        assert_eq!(ages.ages_to_store(1, at(200)).unwrap().len(), 2);
    }

    #[test]
    fn a_rest_is_never_shorter_than_any_client_may_need() {
        let short = NodeAges::new(1, Duration::from_secs(2));
        assert_eq!(short.vote_delay(), VOTE_DELAY_MIN);
        let long = NodeAges::new(1, Duration::from_secs(50));
        assert_eq!(long.vote_delay(), Duration::from_secs(50));
        let longest_ttl = Duration::from_secs(60);
        let stored = StoredNodeInfo {
            longest_ttl,
            ..StoredNodeInfo::default()
        };
        long.note_stored(0, stored, at(0));
        assert_eq!(long.vote_delay(), longest_ttl);
        assert_eq!(long.longest_stored_ttl(), Some((0, longest_ttl)));
    }
}
