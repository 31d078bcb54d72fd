//! The phases of a run and how its time is shared out.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenure::Layout;
use tenure_testkit::{ClockShim, FencedRegister, Fsync, History, Nemesis, RedisServer, Seed};

use crate::fleet::Fleet;
use crate::judge;
use crate::layout;
use crate::nemesis::{self, Kind};
use crate::report::Outcome;

/// Long enough for 100 000 lock operations and 100 faults on two cores.
pub const SECONDS_DEFAULT: u64 = 100;
/// How often a line tells how far the run is.
const PROGRESS: Duration = Duration::from_secs(5);

pub struct Plan {
    pub seed: Seed,
    pub seconds: u64,
    /// The percent of the time that each layout gets.
    shares: Vec<(Layout, u64)>,
    /// Where histories are kept; thrown away if nowhere.
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
pub struct Phase {
    pub name: &'static str,
    /// Its part of a layout's time, in percent.
    percent: u64,
    /// Whether the server keeps its data and its clock, so that nothing may be held twice.
    pub sound: bool,
    clock: bool,
    /// What one thread breaks after the other; the threads break things at the same time.
    lanes: &'static [&'static [Kind]],
}

pub const PHASES: [Phase; 3] = [
    Phase {
        name: "kept",
        percent: 70,
        sound: true,
        clock: false,
        lanes: &[nemesis::OF_SERVER, nemesis::OF_CLIENTS],
    },
    Phase {
        name: "loss",
        percent: 15,
        sound: false,
        clock: false,
        lanes: &[nemesis::OF_DATA, nemesis::OF_CLIENTS],
    },
    // A lost counter is made good by the clock, and a clock set back by the counter: losing both
    // at once may break the growth of fences, and that is said in docs/guarantees.md.
    Phase {
        name: "clock",
        percent: 15,
        sound: false,
        clock: true,
        lanes: &[nemesis::OF_CLOCK, nemesis::OF_CLIENTS],
    },
];

impl Plan {
    pub fn from_env() -> Self {
        let seconds = number_from_env("SECONDS").unwrap_or(SECONDS_DEFAULT);
        let seed = number_from_env("SEED").unwrap_or_else(rand::random);
        eprintln!("fault run with SEED={seed} SECONDS={seconds}");
        Self {
            seed: Seed::new(seed),
            seconds,
            shares: layout::shares_from_env(),
            keep: std::env::var_os("TENURE_FAULTS_KEEP").map(PathBuf::from),
        }
    }

    /// All phases of each layout, one after the other.
    pub fn run(&self) -> Vec<Outcome> {
        let layouts = self.shares.iter();
        let phases = layouts.flat_map(|share| PHASES.iter().map(move |phase| (share, phase)));
        phases
            .map(|((layout, percent), phase)| {
                let time_ms = self.seconds * 10 * phase.percent * percent / 100;
                phase.run(self, *layout, Duration::from_millis(time_ms))
            })
            .collect()
    }

    /// How to run it again, but for seed and length.
    pub fn layout(&self) -> Option<Layout> {
        match &self.shares[..] {
            [(only, _)] => Some(*only),
            _ => None,
        }
    }

    /// A directory for the histories of a phase, and what deletes it if nobody wants to keep it.
    fn dir(&self, phase: &Phase, layout: Layout) -> (PathBuf, Option<tempfile::TempDir>) {
        if let Some(keep) = &self.keep {
            let dir = keep.join(format!("{}-{layout}-{}", self.seed, phase.name));
            std::fs::create_dir_all(&dir).unwrap();
            return (dir, None);
        }
        let dir = tempfile::tempdir().unwrap();
        (dir.path().to_owned(), Some(dir))
    }
}

impl Phase {
    fn run(&self, plan: &Plan, layout: Layout, time: Duration) -> Outcome {
        let clock = self.clock.then(ClockShim::compile).flatten();
        if self.clock && clock.is_none() {
            return Outcome::skipped(*self, layout, "no C compiler to build a clock with");
        }
        let (dir, _deleted_at_the_end) = plan.dir(self, layout);
        let start = Instant::now();
        let mut builder = RedisServer::builder()
            .aof(Fsync::Always)
            // Long scripts are answered with BUSY instead of silence.
            .config("busy-reply-threshold", "50");
        if let Some(clock) = &clock {
            builder = builder.clock(clock.clone());
        }
        let server = builder.start();
        let fleet = Fleet::start(&server, layout, &dir, plan.seed);
        let log = Nemesis::create(&dir);
        let end = start + time;
        self.break_things(plan, &fleet, &log, clock.as_ref(), &dir, end);
        let finished = fleet.finish();
        let mut leftovers = judge::leftovers(&server, layout, &finished);
        let healed_ns = tenure_testkit::history::now_ns();
        judge::take_every_lock(&server, layout, &dir);
        leftovers.extend(judge::immortals(&server));
        let history = History::load(&dir);
        let journal = FencedRegister::open(&dir).journal();
        let verdicts = judge::verdicts(
            &history, &journal, healed_ns, leftovers, &finished, self.sound,
        );
        Outcome::new(
            *self,
            layout,
            &history,
            verdicts,
            &finished,
            start.elapsed(),
        )
    }

    fn break_things(
        &self,
        plan: &Plan,
        fleet: &Fleet<'_>,
        log: &Nemesis,
        clock: Option<&ClockShim>,
        dir: &Path,
        end: Instant,
    ) {
        std::thread::scope(|scope| {
            for (number, kinds) in (1..).zip(self.lanes) {
                let lane = nemesis::Lane {
                    fleet,
                    log,
                    clock,
                    dir,
                    number,
                };
                let seed = plan.seed.part(1_000_000 + number);
                scope.spawn(move || lane.run(kinds, seed, end));
            }
            scope.spawn(|| self.tell_progress(fleet, end));
        });
    }

    fn tell_progress(&self, fleet: &Fleet<'_>, end: Instant) {
        while Instant::now() < end {
            std::thread::sleep(PROGRESS.min(end.saturating_duration_since(Instant::now())));
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            let (operations, faults) = (fleet.operations(), fleet.faults());
            let (name, layout) = (self.name, fleet.layout);
            eprintln!(
                "phase {name} ({layout}): {operations} operations, {faults} faults, {left} s left"
            );
        }
    }
}

/// A number in the environment; empty is as good as none, as `make` likes to pass it.
fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("`{name}` is not a number: `{text}`")))
}
