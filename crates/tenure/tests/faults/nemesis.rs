//! What is broken, when, and whether anybody noticed.

/// Clients, and the connections they have.
mod clients;
/// The clock of one server.
mod clock;
/// Masters that share the slots.
mod cluster;
/// Several independent servers.
mod nodes;
/// The link between a replica and its master.
mod replication;
/// A master that is chosen.
mod sentinel;
/// One server, or one of several.
mod server;
/// Servers that clients find by themselves.
mod service;

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tenure_testkit::{Nemesis, Seed};

pub use clock::Clock;

use crate::fleet::Fleet;
use crate::stage::Stage;

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
    PauseServer = "pause-server",
    KillServer = "kill-server",
    BusyScript = "busy-script",
    OutOfMemory = "out-of-memory",
    ScriptFlush = "script-flush",
    KillConnections = "kill-connections",
    KillSubscribers = "kill-subscribers",
    ForeignHolder = "foreign-holder",
    PauseClient = "pause-client",
    KillClient = "kill-client",
    HoldRequests = "hold-requests",
    HoldReplies = "hold-replies",
    DropRequests = "drop-requests",
    DropReplies = "drop-replies",
    BlackHole = "black-hole",
    Reset = "reset",
    ResetAfterRequest = "reset-after-request",
    CutRequest = "cut-request",
    Delay = "delay",
    Dribble = "dribble",
    Refuse = "refuse",
    RestartEmpty = "restart-empty",
    FlushAll = "flush-all",
    DeleteLock = "delete-lock",
    DeleteFence = "delete-fence",
    ForceRelease = "force-release",
    ClockForward = "clock-forward",
    ClockBack = "clock-back",
    KillForLong = "kill-server-for-long",
    KillTwo = "kill-two-servers",
    KillMost = "kill-most-servers",
    CutServer = "cut-server",
    PauseSentinel = "pause-sentinel",
    KillSentinel = "kill-sentinel",
    PauseReplica = "pause-replica",
    KillReplica = "kill-replica",
    PlannedFailover = "planned-failover",
    KillMaster = "kill-master",
    CutThenKill = "cut-then-kill-master",
    PromoteLagging = "promote-lagging",
    MigrateSlot = "migrate-slot",
    OrderlyFailover = "orderly-failover",
    ForcedFailover = "forced-failover",
    Takeover = "takeover",
    CutThenForce = "cut-then-forced-failover",
}

use Kind::{
    BlackHole, BusyScript, ClockBack, ClockForward, CutRequest, CutServer, CutThenForce,
    CutThenKill, Delay, DeleteFence, DeleteLock, Dribble, DropReplies, DropRequests, FlushAll,
    ForceRelease, ForcedFailover, ForeignHolder, HoldReplies, HoldRequests, KillClient,
    KillConnections, KillForLong, KillMaster, KillMost, KillReplica, KillSentinel, KillServer,
    KillSubscribers, KillTwo, MigrateSlot, OrderlyFailover, OutOfMemory, PauseClient, PauseReplica,
    PauseSentinel, PauseServer, PlannedFailover, PromoteLagging, Refuse, Reset, ResetAfterRequest,
    RestartEmpty, ScriptFlush, Takeover,
};

pub const OF_SERVER: &[Kind] = &[
    PauseServer,
    KillServer,
    BusyScript,
    OutOfMemory,
    ScriptFlush,
    KillConnections,
    KillSubscribers,
    ForeignHolder,
];
pub const OF_CLIENTS: &[Kind] = &[
    PauseClient,
    KillClient,
    HoldRequests,
    HoldReplies,
    DropRequests,
    DropReplies,
    BlackHole,
    Reset,
    ResetAfterRequest,
    CutRequest,
    Delay,
    Dribble,
    Refuse,
];
pub const OF_DATA: &[Kind] = &[
    RestartEmpty,
    FlushAll,
    DeleteLock,
    DeleteLock,
    DeleteFence,
    ForceRelease,
    ForceRelease,
    ForceRelease,
    PauseServer,
    ScriptFlush,
];
pub const OF_CLOCK: &[Kind] = &[
    ClockForward,
    ClockBack,
    PauseServer,
    KillServer,
    KillConnections,
];

/// What may happen to nodes of a Redlock, to one or two at a time.
pub const OF_NODES: &[Kind] = &[
    PauseServer,
    KillServer,
    KillForLong,
    KillTwo,
    CutServer,
    BusyScript,
    OutOfMemory,
    ScriptFlush,
    KillConnections,
    KillSubscribers,
    ClockBack,
];
pub const OF_NODE_DATA: &[Kind] = &[
    RestartEmpty,
    FlushAll,
    DeleteLock,
    ForceRelease,
    ForceRelease,
    KillServer,
    PauseServer,
];
pub const OF_NODE_CLOCK: &[Kind] = &[ClockForward, ClockBack, KillServer, PauseServer, CutServer];
/// They have no append-only file: whoever is killed has forgotten everything. If that are most, only
/// their silence keeps locks from being granted twice.
pub const OF_FORGETFUL_NODES: &[Kind] = &[KillMost, KillMost, KillMost, KillTwo, KillForLong];

/// Nobody is promoted for these, if the machine is not too crowded.
pub const OF_SENTINELS: &[Kind] = &[
    PauseSentinel,
    KillSentinel,
    PauseReplica,
    KillReplica,
    PauseServer,
    ScriptFlush,
    KillConnections,
    KillSubscribers,
];
pub const OF_MASTER: &[Kind] = &[PlannedFailover, KillMaster, CutThenKill, PromoteLagging];
/// An orderly failover is one without loss: the old master waits for the new one.
pub const OF_CLUSTER: &[Kind] = &[
    MigrateSlot,
    MigrateSlot,
    MigrateSlot,
    MigrateSlot,
    OrderlyFailover,
    PauseServer,
    PauseReplica,
    ScriptFlush,
    KillConnections,
    KillSubscribers,
];
pub const OF_SHARDS: &[Kind] = &[
    ForcedFailover,
    CutThenForce,
    KillMaster,
    Takeover,
    MigrateSlot,
];
/// Where nothing stands between clients and servers.
pub const OF_PROCESSES: &[Kind] = &[PauseClient, KillClient];

/// How long a fault lasts: longer than any lease, now and then.
const LASTS_MS: Range<u64> = 30..800;
const SHORT_MS: Range<u64> = 30..300;

/// Breaks one thing after the other.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub fleet: &'a Fleet<'a>,
    pub log: &'a Nemesis,
    pub clock: Option<&'a Clock>,
    pub dir: &'a Path,
    pub number: u64,
}

impl Lane<'_> {
    /// Goes through all kinds in random order, again and again, until the time is up. Everything
    /// is whole again afterwards.
    pub fn run(self, kinds: &[Kind], pause_ms: &Range<u64>, seed: Seed, end: Instant) {
        let mut rng = seed.rng();
        let kinds: Vec<Kind> = kinds.iter().copied().filter(|it| self.can(*it)).collect();
        let mut round: Vec<Kind> = Vec::new();
        while Instant::now() < end {
            if round.is_empty() {
                round.clone_from(&kinds);
                round.shuffle(&mut rng);
            }
            let Some(kind) = round.pop() else { return };
            if self.strike(kind, &mut rng) {
                self.fleet.count_fault();
            }
            sleep_ms(rng.random_range(pause_ms.clone()));
        }
    }

    fn can(&self, kind: Kind) -> bool {
        self.clock.is_some() || !matches!(kind, ClockForward | ClockBack)
    }

    /// Does it, undoes it, writes it down; true if somebody was hit.
    fn strike(&self, kind: Kind, rng: &mut StdRng) -> bool {
        match kind {
            PauseClient | KillClient => {
                let slot = self.fleet.slots.choose(rng).unwrap();
                self.on_process(kind, slot, rng)
            }
            KillForLong | KillTwo | KillMost | CutServer => {
                self.logged(kind, || self.on_nodes(kind, rng))
            }
            kind if OF_CLIENTS.contains(&kind) => {
                let proxies = clients::some_connections(&self.fleet.slots, rng);
                self.logged(kind, || clients::on_connections(kind, &proxies, rng))
            }
            kind => self.logged(kind, || match self.fleet.stage {
                Stage::Sentinel(sentinels) => sentinel::strike(kind, sentinels, rng),
                Stage::Cluster(cluster) => cluster::strike(kind, cluster, rng),
                Stage::Single(_) | Stage::Redlock(_) => self.on_server(kind, rng),
            }),
        }
    }

    fn logged(&self, kind: Kind, strike: impl FnOnce() -> bool) -> bool {
        let fault = self.log.begin(kind.name());
        let took_effect = strike();
        fault.end(took_effect);
        took_effect
    }
}

fn random_time(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(LASTS_MS))
}

/// Less than it takes until a server is thought to be dead.
fn short_time(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(SHORT_MS))
}

fn sleep_ms(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}
