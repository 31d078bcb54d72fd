//! One phase: servers, clients and a history of its own, and what is broken meanwhile.

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::{History, Nemesis, Seed};

use crate::allowance::{Class, Footing};
use crate::client::Role;
use crate::deployment::Deployment;
use crate::fleet::Fleet;
use crate::judge;
use crate::nemesis::{self, Clock, Kind};
use crate::plan::{Plan, Share};
use crate::report::Outcome;
use crate::stage::{FORGETFUL, Stage};
use crate::turn;

/// How often a line tells how far the run is.
const PROGRESS: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Phase {
    pub name: &'static str,
    /// Its part of a share's time.
    pub percent: u32,
    /// In less time than this it could show nothing.
    pub least: Duration,
    /// The worst that happens in it.
    pub class: Class,
    pub servers: Servers,
    pub clients: Clients,
    /// What one thread breaks after the other; the threads break things at the same time.
    pub lanes: &'static [(&'static [Kind], Pause)],
}

/// How long to wait between two faults, in milliseconds: so that work gets done too.
pub type Pause = Range<u64>;

/// What the servers of a phase are like.
#[derive(Debug, Clone, Copy)]
pub struct Servers {
    pub aof: Aof,
    pub clocks: Clocks,
    /// Whether one server is really two that change places.
    pub pair: bool,
    /// Whether a cluster gets a replica later that no client was told of.
    pub latecomer: bool,
}

/// Which servers keep what they grant, by an append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aof {
    All,
    /// Two of five nodes of a Redlock do.
    Mixed,
}

/// Which clocks can be turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    None,
    /// One clock: that of one node of a Redlock, of all servers elsewhere.
    OfOne,
    /// Each node that keeps nothing has one of its own.
    OfTheForgetful,
}

/// What the clients of a phase are like.
#[derive(Debug, Clone, Copy)]
pub struct Clients {
    pub processes: usize,
    pub role: Role,
    /// The longest lease that a client asks for; they take turns.
    pub longest_ttls: &'static [Duration],
    pub after_failover: Option<Duration>,
    /// Whether some locks are confirmed by all replicas, where there are replicas.
    pub replicated: bool,
    /// Whether they hand off never, by default, or as often as they may; they take turns.
    pub mixed_turns: bool,
}

impl Phase {
    pub fn run(&self, plan: &Plan, share: Share, time: Duration, seed: Seed) -> Outcome {
        if time < self.least {
            return Outcome::skipped(self, share, "too little time for it");
        }
        let clocks = self.servers.clocks.compile();
        let needs_clocks = matches!(self.class, Class::ClockSet | Class::Forgetful);
        if needs_clocks && clocks.is_empty() {
            return Outcome::skipped(self, share, "no C compiler to build a clock with");
        }
        let (dir, _deleted_at_the_end) = plan.dir(share, self.name, seed);
        let start = Instant::now();
        let stage = Stage::start(share.deployment, self.servers, &clocks);
        let fleet = Fleet::start(&stage, share.layout, self.clients, &dir, seed);
        self.break_things(seed, share, &fleet, &clocks, &dir, start + time);
        let access = fleet.access(&[]);
        let finished = fleet.finish();
        // Not earlier: to set a clock forward while locks are held would be another fault.
        clocks.iter().for_each(Clock::catch_up);
        // A master that has just begun to reign gives no locks yet.
        thread::sleep(self.clients.after_failover.unwrap_or_default());
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
        let footing = self.footing(share.deployment);
        let class = self.class_of(&stage);
        let mut verdicts = evidence.verdicts(footing, class);
        if self.clients.role == Role::Crowd {
            verdicts.push(turn::next_served(&history, footing, class));
        }
        Outcome::new(self, share, &history, verdicts, &finished, start.elapsed())
    }

    /// What all locks stand on that do not ask for more.
    fn footing(&self, deployment: Deployment) -> Footing {
        match self.clients.after_failover {
            Some(_) => Footing::Patient(deployment),
            None => Footing::Plain(deployment),
        }
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
        clocks: &[Clock],
        dir: &Path,
        end: Instant,
    ) {
        let log = Nemesis::create(dir);
        thread::scope(|scope| {
            for (number, (kinds, pause)) in (1..).zip(self.lanes) {
                let lane = nemesis::Lane {
                    fleet,
                    log: &log,
                    clocks,
                    dir,
                    number,
                    end,
                };
                let seed = seed.part(1_000_000 + number);
                scope.spawn(move || lane.run(kinds, pause, seed));
            }
            scope.spawn(|| self.tell_progress(share, fleet, end));
        });
        if self.class == Class::ClockSet {
            // Now: clients that end wait for leases that began before it was set back.
            clocks.iter().for_each(Clock::catch_up);
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

impl Clocks {
    /// The clocks, none where there is no compiler to build them with.
    fn compile(self) -> Vec<Clock> {
        let count = match self {
            Self::None => 0,
            Self::OfOne => 1,
            Self::OfTheForgetful => FORGETFUL.len(),
        };
        let clocks: Option<Vec<Clock>> = (0..count).map(|_| Clock::compile()).collect();
        clocks.unwrap_or_default()
    }
}
