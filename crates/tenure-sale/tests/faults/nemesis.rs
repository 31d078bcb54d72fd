//! Which faults are injected, when, and whether they took effect.

/// Connections between a process and the gate.
mod connections;
/// The ledger's server.
mod ledger;
/// Processes of the sale, killed from outside or at a step of their own.
mod processes;
/// The gate's server.
mod server;

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tenure_testkit::{Nemesis, Seed};

pub use processes::watch_failpoints;

use crate::client::Role;
use crate::deployment::Deployment;
use crate::fleet::Fleet;
use crate::stage::{GateServers, Stage};

macro_rules! kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($kind,)* }

        impl Kind {
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    KillInstance = "kill-instance",
    KillConsumer = "kill-consumer",
    PauseInstance = "pause-instance",
    PauseConsumer = "pause-consumer",
    Failpoint = "failpoint",
    KillServer = "kill-redis",
    PauseServer = "pause-redis",
    ScriptFlush = "script-flush",
    OutOfMemory = "out-of-memory",
    KillConnections = "kill-connections",
    DropReplies = "drop-replies",
    ResetAfterRequest = "reset-after-request",
    KillLedger = "kill-postgres",
    EndLedgerConnections = "end-postgres-connections",
    PauseLedger = "pause-postgres",
    PlannedFailover = "planned-failover",
    KillMaster = "kill-master",
    CutThenKill = "cut-then-kill-master",
}

use Kind::{
    CutThenKill, DropReplies, EndLedgerConnections, Failpoint, KillConnections, KillConsumer,
    KillInstance, KillLedger, KillMaster, KillServer, OutOfMemory, PauseConsumer, PauseInstance,
    PauseLedger, PauseServer, PlannedFailover, ResetAfterRequest, ScriptFlush,
};

/// What one thread breaks after the other, and how long it waits between; the threads break things at
/// the same time.
pub type LanePlan = (&'static [Kind], Range<u64>);

const OF_PROCESSES: &[Kind] = &[
    KillInstance,
    KillConsumer,
    PauseInstance,
    PauseConsumer,
    Failpoint,
    Failpoint,
    Failpoint,
];
const OF_SERVER: &[Kind] = &[
    KillServer,
    PauseServer,
    ScriptFlush,
    OutOfMemory,
    KillConnections,
    DropReplies,
    ResetAfterRequest,
];
const OF_SENTINEL: &[Kind] = &[
    PlannedFailover,
    KillMaster,
    CutThenKill,
    CutThenKill,
    ScriptFlush,
    KillConnections,
];
const OF_LEDGER: &[Kind] = &[EndLedgerConnections, KillLedger, PauseLedger];

pub fn lanes(deployment: Deployment) -> [LanePlan; 3] {
    let of_gate = match deployment {
        Deployment::Single => OF_SERVER,
        Deployment::Sentinel => OF_SENTINEL,
    };
    [
        (of_gate, 300..1_500),
        (OF_PROCESSES, 200..1_000),
        (OF_LEDGER, 1_500..4_000),
    ]
}

/// How long a fault lasts.
const LASTS_MS: Range<u64> = 50..1_200;

/// Breaks one thing after the other.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub stage: &'a Stage,
    pub fleet: &'a Fleet<'a>,
    pub log: &'a Nemesis,
}

impl Lane<'_> {
    /// Goes through all kinds in random order, again and again, until the time is up. Everything is
    /// whole again afterwards.
    pub fn run(self, (kinds, pause_ms): &LanePlan, seed: Seed, end: Instant) {
        let mut rng = seed.rng();
        let mut round: Vec<Kind> = Vec::new();
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(rng.random_range(pause_ms.clone())));
            if round.is_empty() {
                round = kinds.to_vec();
                round.retain(|kind| *kind != Failpoint || cfg!(feature = "failpoints"));
                round.shuffle(&mut rng);
            }
            if let Some(kind) = round.pop() {
                self.strike(kind, &mut rng);
            }
        }
    }

    /// Does it, undoes it, writes it down.
    fn strike(&self, kind: Kind, rng: &mut StdRng) {
        match kind {
            KillInstance | PauseInstance => self.on_process(kind, Role::Instance, rng),
            KillConsumer | PauseConsumer => self.on_process(kind, Role::Consumer, rng),
            Failpoint => self.plant(rng),
            DropReplies | ResetAfterRequest => {
                let slot = self.fleet.slots.choose(rng).unwrap();
                if let Some(proxy) = &slot.proxy {
                    self.logged(kind, || connections::strike(kind, proxy, rng));
                }
            }
            EndLedgerConnections | KillLedger | PauseLedger => {
                self.logged(kind, || ledger::strike(kind, &self.stage.ledger, rng));
            }
            kind => self.logged(kind, || match &self.stage.gate {
                GateServers::Single(server) => server::strike(kind, server, rng),
                GateServers::Sentinel(sentinels) => server::strike_sentinels(kind, sentinels, rng),
            }),
        }
    }

    fn logged(&self, kind: Kind, strike: impl FnOnce() -> bool) {
        let fault = self.log.begin(kind.name());
        let took_effect = strike();
        fault.end(took_effect);
    }
}

fn random_time(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(LASTS_MS))
}
