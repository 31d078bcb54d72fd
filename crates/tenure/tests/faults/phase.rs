//! One phase: servers, clients and a history of its own, and what is broken meanwhile.

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::{History, Nemesis, Seed};

use crate::allowance::Class;
use crate::client::LONG_TTL;
use crate::deployment::Deployment;
use crate::fleet::Fleet;
use crate::judge;
use crate::nemesis::{self, Clock, Kind};
use crate::plan::{Plan, Share};
use crate::report::Outcome;
use crate::stage::Stage;

/// How often a line tells how far the run is.
const PROGRESS: Duration = Duration::from_secs(5);
/// For how long a node that may have forgotten something has no vote: longer than any other lease,
/// and short enough for a phase to have many such times.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
/// A server tells its age in whole seconds, and may round it either way.
const AGE_STEP: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Phase {
    pub name: &'static str,
    /// Its part of a share's time.
    pub percent: u32,
    /// The worst that happens in it.
    pub class: Class,
    /// Whether servers keep what they grant, by an append-only file.
    persistent: bool,
    /// Whether one server has a clock that is turned.
    clock: bool,
    /// The longest lease of clients of a Redlock.
    longest_ttl: Duration,
    /// What one thread breaks after the other; the threads break things at the same time.
    lanes: &'static [(&'static [Kind], Pause)],
}

/// How long to wait between two faults, in milliseconds: so that work gets done too.
type Pause = Range<u64>;

const PAUSE: Pause = 50..300;
/// Where a fault has a long tail, such as a node that has no vote for a second.
const LONG_PAUSE: Pause = 500..1_500;

const KEPT: Phase = Phase {
    name: "kept",
    percent: 70,
    class: Class::Kept,
    persistent: true,
    clock: false,
    longest_ttl: LONG_TTL,
    lanes: &[(nemesis::OF_SERVER, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
};

/// The phases of a deployment, one after the other.
pub fn all_of(deployment: Deployment) -> &'static [Phase] {
    match deployment {
        Deployment::Single => &OF_SINGLE,
        Deployment::Redlock => &OF_REDLOCK,
        Deployment::Sentinel => &OF_SENTINEL,
        Deployment::Cluster => &OF_CLUSTER,
    }
}

static OF_SINGLE: [Phase; 3] = [
    KEPT,
    Phase {
        name: "loss",
        percent: 15,
        class: Class::Lost,
        lanes: &[(nemesis::OF_DATA, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    // A lost counter is made good by the clock, and a clock set back by the counter: losing both
    // at once may break the growth of fences, and that is said in docs/guarantees.md.
    Phase {
        name: "clock",
        percent: 15,
        class: Class::ClockSet,
        clock: true,
        lanes: &[(nemesis::OF_CLOCK, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
];

static OF_REDLOCK: [Phase; 4] = [
    Phase {
        percent: 50,
        clock: true,
        lanes: &[(nemesis::OF_NODES, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    // Nodes without an append-only file: what keeps two from holding a lock is only that a node
    // which has just started has no vote.
    Phase {
        name: "forgetful",
        percent: 26,
        class: Class::Forgetful,
        persistent: false,
        longest_ttl: FORGOTTEN_AFTER,
        lanes: &[
            (nemesis::OF_FORGETFUL_NODES, LONG_PAUSE),
            (nemesis::OF_CLIENTS, PAUSE),
        ],
        ..KEPT
    },
    Phase {
        name: "loss",
        percent: 12,
        class: Class::Lost,
        lanes: &[(nemesis::OF_NODE_DATA, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    Phase {
        name: "clock",
        percent: 12,
        class: Class::ClockSet,
        clock: true,
        lanes: &[
            (nemesis::OF_NODE_CLOCK, PAUSE),
            (nemesis::OF_CLIENTS, PAUSE),
        ],
        ..KEPT
    },
];

static OF_SENTINEL: [Phase; 2] = [
    Phase {
        percent: 35,
        lanes: &[
            (nemesis::OF_SENTINELS, PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
        ],
        ..KEPT
    },
    Phase {
        name: "failover",
        percent: 65,
        class: Class::FailedOver,
        lanes: &[
            (nemesis::OF_MASTER, PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
        ],
        ..KEPT
    },
];

static OF_CLUSTER: [Phase; 2] = [
    Phase {
        percent: 45,
        lanes: &[
            (nemesis::OF_CLUSTER, PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
        ],
        ..KEPT
    },
    Phase {
        name: "failover",
        percent: 55,
        class: Class::FailedOver,
        lanes: &[
            (nemesis::OF_SHARDS, PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
        ],
        ..KEPT
    },
];

impl Phase {
    pub fn run(&self, plan: &Plan, share: Share, time: Duration) -> Outcome {
        let clock = self.clock.then(Clock::compile).flatten();
        if self.class == Class::ClockSet && clock.is_none() {
            return Outcome::skipped(self, share, "no C compiler to build a clock with");
        }
        let (dir, _deleted_at_the_end) = plan.dir(share, self.name);
        let start = Instant::now();
        let stage = Stage::start(share.deployment, self.persistent, clock.as_ref());
        let fleet = Fleet::start(&stage, share.layout, self.longest_ttl, &dir, plan.seed);
        let access = fleet.access(&[]);
        self.break_things(plan.seed, share, &fleet, clock.as_ref(), &dir, start + time);
        let finished = fleet.finish();
        self.heal(clock.as_ref());
        let mut leftovers = judge::leftovers(&stage, share.layout, &finished);
        let healed_ns = judge::take_every_lock(&access, &dir);
        leftovers.extend(judge::immortals(&stage));
        let history = History::load(&dir);
        let evidence = judge::Evidence {
            history: &history,
            dir: &dir,
            healed_ns,
            leftovers,
            finished: &finished,
        };
        let verdicts = evidence.verdicts(share.deployment, self.class_of(&stage));
        Outcome::new(self, share, &history, verdicts, &finished, start.elapsed())
    }

    /// The worst that happened. On a crowded machine a server may be taken for dead that was not to
    /// be replaced.
    fn class_of(&self, stage: &Stage) -> Class {
        if self.class == Class::Kept && stage.promotions() > 0 {
            return Class::FailedOver;
        }
        self.class
    }

    fn break_things(
        &self,
        seed: Seed,
        share: Share,
        fleet: &Fleet<'_>,
        clock: Option<&Clock>,
        dir: &Path,
        end: Instant,
    ) {
        let log = Nemesis::create(dir);
        thread::scope(|scope| {
            for (number, (kinds, pause)) in (1..).zip(self.lanes) {
                let lane = nemesis::Lane {
                    fleet,
                    log: &log,
                    clock,
                    dir,
                    number,
                };
                let seed = seed.part(1_000_000 + number);
                scope.spawn(move || lane.run(kinds, pause, seed, end));
            }
            scope.spawn(|| self.tell_progress(share, fleet, end));
        });
        if self.class == Class::ClockSet
            && let Some(clock) = clock
        {
            // Now: clients that end wait for leases that began before it was set back.
            clock.catch_up();
        }
    }

    /// What is still to come before servers are as they should be.
    fn heal(&self, clock: Option<&Clock>) {
        if let Some(clock) = clock {
            // Not earlier: to set it forward while locks are held would be another fault.
            clock.catch_up();
        }
        if !self.persistent {
            // Until every node may vote.
            thread::sleep(self.longest_ttl + AGE_STEP);
        }
    }

    fn tell_progress(&self, share: Share, fleet: &Fleet<'_>, end: Instant) {
        while Instant::now() < end {
            thread::sleep(PROGRESS.min(end.saturating_duration_since(Instant::now())));
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            let (operations, faults) = (fleet.operations(), fleet.faults());
            let (name, deployment, layout) = (self.name, share.deployment, share.layout);
            eprintln!(
                "phase {name} ({deployment}, {layout}): {operations} operations, {faults} faults, {left} s left"
            );
        }
    }
}
