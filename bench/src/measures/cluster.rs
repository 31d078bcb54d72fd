//! Pairs per second on a cluster of three: one acquire and one release of a free lock, each task on a
//! name of its own, beside the floor over the same nodes.

use std::time::Duration;

use tenure_testkit::Cluster;

use crate::floor::Floor;
use crate::many::Many;
use crate::ours::Ours;
use crate::rounds::{Entry, interleave_often};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

const MASTERS: usize = 3;
const TASKS: usize = 64;
/// How long each of them runs at a time, and how often per round.
const SLICE: Duration = Duration::from_millis(200);
const SLICES: usize = 3;

/// How the names are spread over the slots.
#[derive(Clone, Copy)]
enum Names {
    /// Each name has a slot of its own, most likely.
    Distinct,
    /// All names have the same hash tag, so they share a slot and a node.
    Tagged,
}

impl Names {
    fn of(self, task: usize) -> String {
        match self {
            Self::Distinct => format!("cluster:{task}"),
            Self::Tagged => format!("{{cluster}}:{task}"),
        }
    }
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let cluster = Cluster::builder().masters(MASTERS).replicas(0).start();
    let nodes = cluster.servers().iter().map(|server| server.url());
    let floor = runtime.block_on(Floor::connect_to_cluster(nodes.collect()));
    let ours = runtime.block_on(Ours::connect_by_default(&cluster.url()));
    let mut rows = Vec::new();
    for (what, names, target) in [
        (
            "Cluster of 3, pairs/s, 64 tasks on distinct names",
            Names::Distinct,
            0.8,
        ),
        (
            "Cluster of 3, pairs/s, 64 tasks on names that share a tag",
            Names::Tagged,
            1.5,
        ),
    ] {
        let many = Many::new(&runtime, (TASKS, SLICE), move |task| names.of(task));
        // Connections, scripts, fence counters.
        many.pairs_per_second(&floor);
        many.pairs_per_second(&ours);
        let entries = vec![
            Entry::new("floor", || many.pairs_per_second(&floor)),
            Entry::new("ours", || many.pairs_per_second(&ours)),
        ];
        let results = interleave_often(what, setting.rounds, SLICES, entries);
        let named = |label: &str| results.samples(label, |rate| *rate).mean_of(SLICES);
        rows.push(Row::ratio(
            what,
            (&named("ours"), Unit::PerSecond),
            ("floor over the same cluster", &named("floor")),
            Target::AtLeast(target),
        ));
    }
    rows
}
