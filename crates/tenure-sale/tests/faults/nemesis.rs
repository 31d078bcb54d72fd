//! Which faults are injected, when, and whether they took effect.

/// Masters of a cluster that are replaced, and slots that move.
mod cluster;
/// Connections between a process and the gate.
mod connections;
/// Keys of an item that are deleted, overwritten and trimmed.
mod keys;
/// The ledger's server.
mod ledger;
/// What operators do to a sale that is healthy.
mod operators;
/// Processes of the sale, killed from outside or at a step of their own.
mod processes;
/// Commands that are forbidden for a while.
mod rights;
/// The gate's server.
mod server;

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tenure_sale::ErrorKind;
use tenure_testkit::{Nemesis, RedisServer, Seed};

pub use operators::Operators;
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
    CutThenPromote = "cut-then-promote",
    ForcedFailover = "forced-failover",
    MigrateSlot = "migrate-slot",
    DeleteKey = "delete-key",
    OverwriteKey = "overwrite-key",
    DeleteField = "delete-field",
    TrimQueue = "trim-queue",
    ForbidRead = "forbid-reads",
    ForbidWrite = "forbid-writes",
    ChangeLimit = "change-limit",
    WrongDatabase = "wrong-database",
}

use Kind::{
    ChangeLimit, CutThenKill, CutThenPromote, DeleteField, DeleteKey, DropReplies,
    EndLedgerConnections, Failpoint, ForbidRead, ForbidWrite, ForcedFailover, KillConnections,
    KillConsumer, KillInstance, KillLedger, KillMaster, KillServer, MigrateSlot, OutOfMemory,
    OverwriteKey, PauseConsumer, PauseInstance, PauseLedger, PauseServer, PlannedFailover,
    ResetAfterRequest, ScriptFlush, TrimQueue, WrongDatabase,
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
    ForbidRead,
];
const OF_SENTINEL: &[Kind] = &[
    PlannedFailover,
    KillMaster,
    CutThenKill,
    CutThenKill,
    ScriptFlush,
    KillConnections,
];
const OF_CLUSTER: &[Kind] = &[
    PlannedFailover,
    ForcedFailover,
    KillMaster,
    CutThenPromote,
    MigrateSlot,
    MigrateSlot,
    ScriptFlush,
    KillConnections,
];
const OF_DAMAGED: &[Kind] = &[
    DeleteKey,
    DeleteKey,
    DeleteKey,
    OverwriteKey,
    OverwriteKey,
    DeleteField,
    TrimQueue,
    TrimQueue,
    ForbidRead,
    ForbidWrite,
    OutOfMemory,
    KillServer,
];
const OF_OPERATORS: &[Kind] = &[ChangeLimit, ChangeLimit, ChangeLimit, WrongDatabase];
const OF_LEDGER: &[Kind] = &[EndLedgerConnections, KillLedger, PauseLedger];

pub fn lanes(deployment: Deployment) -> [LanePlan; 4] {
    let of_gate = match deployment {
        Deployment::Single => OF_SERVER,
        Deployment::Sentinel => OF_SENTINEL,
        Deployment::Cluster => OF_CLUSTER,
        Deployment::Damaged => OF_DAMAGED,
    };
    [
        (of_gate, 300..1_500),
        (OF_PROCESSES, 200..1_000),
        (OF_LEDGER, 1_500..4_000),
        (OF_OPERATORS, 500..2_000),
    ]
}

/// How long a fault lasts.
const LASTS_MS: Range<u64> = 50..1_200;

/// How long a moment is waited for that comes again and again.
const SHORT: Duration = Duration::from_millis(500);

/// Breaks one thing after the other.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub stage: &'a Stage,
    pub fleet: &'a Fleet<'a>,
    pub log: &'a Nemesis,
    pub operators: &'a Operators,
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
            WrongDatabase => {
                if let Some(url) = self.stage.wrong_gate_url() {
                    self.logged(kind, || self.open_on_wrong_database(&url));
                }
            }
            ChangeLimit => self.logged(kind, || self.operators.change_limit(rng)),
            kind => self.logged(kind, || match &self.stage.gate {
                GateServers::Single(server) => self.on_server(kind, server, rng),
                GateServers::Cluster(cluster) => {
                    cluster::strike(kind, cluster, self.operators.item(rng), rng)
                }
                GateServers::Sentinel(sentinels) => server::strike_sentinels(kind, sentinels, rng),
            }),
        }
    }

    /// True if that was refused because of the other gate; anything but success is an answer.
    fn open_on_wrong_database(&self, url: &str) -> bool {
        match self.operators.open(url, &self.stage.ledger_url()) {
            Ok(()) => {
                let told = "a sale was opened on the wrong database";
                self.fleet.complain(told.to_owned());
                false
            }
            Err(error) => error.kind() == ErrorKind::LedgerInUse,
        }
    }

    fn on_server(&self, kind: Kind, server: &RedisServer, rng: &mut StdRng) -> bool {
        match kind {
            DeleteKey | OverwriteKey | DeleteField | TrimQueue => {
                keys::strike(kind, server, self.operators.item(rng), rng)
            }
            ForbidRead | ForbidWrite => rights::strike(kind, server, rng),
            kind => server::strike(kind, server, rng),
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
