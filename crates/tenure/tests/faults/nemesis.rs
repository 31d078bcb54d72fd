//! Which faults are injected, when, and whether they took effect.

/// Clients, and the connections they have.
mod clients;
/// The clock of one server.
mod clock;
/// Masters that share the slots.
mod cluster;
/// The counter that fences come from.
mod fences;
/// Nodes of a Redlock that keep nothing.
mod forgetting;
/// Several independent servers.
mod nodes;
/// Two servers that change places under their clients.
mod pair;
/// One master after the other, whatever chooses it.
mod reigns;
/// The link between a replica and its master.
mod replication;
/// A master that is chosen.
mod sentinel;
/// One server, or one of several.
mod server;
/// Servers that clients find by themselves.
mod service;
/// Those who wait for a lock.
mod waiters;

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tenure::Layout;
use tenure_testkit::{Nemesis, Seed};

pub use clock::Clock;
pub use waiters::WITH_THE_GONE;

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
    ExpireFence = "expire-fence",
    RollBackFence = "roll-back-fence",
    Evict = "evict",
    SwapServer = "swap-server",
    ThereAndBack = "there-and-back",
    StallThenPromote = "stall-then-promote",
    HideNewMaster = "hide-new-master",
    HideOldMaster = "hide-old-master",
    PromoteUnknown = "promote-unknown",
    ClockRate = "clock-rate",
    RestartWrong = "restart-with-wrong-clock",
    ForgetBareMajority = "forget-bare-majority",
    ForgetMost = "forget-most",
    KillFirstWaiters = "kill-first-waiters",
    PauseFirstWaiters = "pause-first-waiters",
}

use Kind::{
    BlackHole, BusyScript, ClockBack, ClockForward, ClockRate, CutRequest, CutServer, CutThenForce,
    CutThenKill, Delay, DeleteFence, DeleteLock, Dribble, DropReplies, DropRequests, Evict,
    ExpireFence, FlushAll, ForceRelease, ForcedFailover, ForeignHolder, ForgetBareMajority,
    ForgetMost, HideNewMaster, HideOldMaster, HoldReplies, HoldRequests, KillClient,
    KillConnections, KillFirstWaiters, KillForLong, KillMaster, KillReplica, KillSentinel,
    KillServer, KillSubscribers, KillTwo, MigrateSlot, OrderlyFailover, OutOfMemory, PauseClient,
    PauseFirstWaiters, PauseReplica, PauseSentinel, PauseServer, PlannedFailover, PromoteLagging,
    PromoteUnknown, Refuse, Reset, ResetAfterRequest, RestartEmpty, RestartWrong, RollBackFence,
    ScriptFlush, StallThenPromote, SwapServer, Takeover, ThereAndBack,
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
    ExpireFence,
    DeleteFence,
    RollBackFence,
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
    Evict,
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
/// Some nodes have no append-only file: one that is killed has forgotten everything, and only its
/// silence keeps locks from being granted twice.
pub const OF_FORGETFUL_NODES: &[Kind] = &[
    ForgetBareMajority,
    ForgetBareMajority,
    RestartWrong,
    ForgetMost,
];

/// These cause no promotion, if the machine is not too crowded.
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
pub const OF_MASTER: &[Kind] = &[
    StallThenPromote,
    PlannedFailover,
    KillMaster,
    CutThenKill,
    PromoteLagging,
    HideNewMaster,
    HideOldMaster,
];
/// Where a new master gives no locks for a while.
pub const OF_PATIENT_MASTERS: &[Kind] = &[
    ThereAndBack,
    HideNewMaster,
    HideOldMaster,
    StallThenPromote,
    PromoteLagging,
    CutThenKill,
];
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
    StallThenPromote,
    ForcedFailover,
    CutThenForce,
    KillMaster,
    Takeover,
    MigrateSlot,
    HideNewMaster,
    HideOldMaster,
];
pub const OF_PATIENT_SHARDS: &[Kind] = &[
    ThereAndBack,
    PromoteUnknown,
    StallThenPromote,
    HideNewMaster,
    HideOldMaster,
    CutThenForce,
    KillMaster,
];
/// Two servers that change places under their clients.
pub const OF_SWAPS: &[Kind] = &[StallThenPromote, SwapServer, SwapServer, PauseServer];
pub const OF_PATIENT_SWAPS: &[Kind] = &[ThereAndBack, SwapServer, StallThenPromote, PauseServer];
pub const OF_CROWD: &[Kind] = &[KillFirstWaiters, PauseFirstWaiters];
/// All servers agree on the time, and their clients go by another clock.
pub const OF_RATE: &[Kind] = &[ClockRate];
/// Where connections are left alone.
pub const OF_PROCESSES: &[Kind] = &[PauseClient, KillClient];

/// How long a fault lasts: longer than any lease, now and then.
const LASTS_MS: Range<u64> = 30..800;
const SHORT_MS: Range<u64> = 30..300;

/// Breaks one thing after the other.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub fleet: &'a Fleet<'a>,
    pub log: &'a Nemesis,
    /// Those that can be turned.
    pub clocks: &'a [Clock],
    pub dir: &'a Path,
    pub number: u64,
    pub end: Instant,
}

impl Lane<'_> {
    /// Goes through all kinds in random order, again and again, until the time is up; the first of
    /// them comes first, for it may be the only one that there is time for. Everything is whole
    /// again afterwards.
    pub fn run(self, kinds: &[Kind], pause_ms: &Range<u64>, seed: Seed) {
        let mut rng = seed.rng();
        let kinds: Vec<Kind> = kinds.iter().copied().filter(|it| self.can(*it)).collect();
        let mut round: Vec<Kind> = kinds.first().copied().into_iter().collect();
        // Clients must be at work to be hit.
        sleep_ms(rng.random_range(SHORT_MS));
        while Instant::now() < self.end {
            if round.is_empty() {
                round.clone_from(&kinds);
                round.shuffle(&mut rng);
            }
            let Some(kind) = round.pop() else { return };
            if self.strike(kind, &mut rng) {
                self.fleet.count_fault();
            }
            let pause = Duration::from_millis(rng.random_range(pause_ms.clone()));
            thread::sleep(pause.min(self.left()));
        }
    }

    /// How much of the phase is left.
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn can(&self, kind: Kind) -> bool {
        match kind {
            ClockForward | ClockBack | ClockRate => !self.clocks.is_empty(),
            // Without our counter Java would begin again at 1, and be right.
            ExpireFence | RollBackFence => self.fleet.layout != Layout::Redisson,
            DeleteFence if self.number == 1 => self.fleet.layout != Layout::Redisson,
            _ => true,
        }
    }

    /// Injects the fault, undoes it, records it; true if a client was affected.
    fn strike(&self, kind: Kind, rng: &mut StdRng) -> bool {
        match kind {
            PauseClient | KillClient => {
                let slot = self.fleet.slots.choose(rng).unwrap();
                self.on_process(kind, slot, rng)
            }
            KillForLong | KillTwo | CutServer => self.logged(kind, || self.on_nodes(kind, rng)),
            RestartWrong | ForgetBareMajority => self.logged(kind, || self.forget(kind, rng)),
            ForgetMost => self.forget_most(rng),
            KillFirstWaiters | PauseFirstWaiters => self.on_waiters(kind, rng),
            ExpireFence | DeleteFence | RollBackFence => {
                self.logged(kind, || self.on_fence(kind, rng))
            }
            ThereAndBack | StallThenPromote | HideNewMaster | HideOldMaster | SwapServer => {
                self.logged(kind, || self.on_reign(kind, rng))
            }
            ClockRate => self.logged(kind, || self.change_rate(rng)),
            kind if OF_CLIENTS.contains(&kind) => {
                let proxies = clients::some_connections(self.fleet, rng);
                self.logged(kind, || clients::on_connections(kind, &proxies, rng))
            }
            kind => self.logged(kind, || match self.fleet.stage {
                Stage::Sentinel(sentinels) => sentinel::strike(kind, sentinels, rng),
                Stage::Cluster(cluster) => cluster::strike(kind, cluster, rng),
                Stage::Single(_) | Stage::Pair(_) | Stage::Redlock(_) => self.on_server(kind, rng),
            }),
        }
    }

    /// Lets the clock of all servers run too fast or too slow, by as much as is allowed, from now on.
    fn change_rate(&self, rng: &mut StdRng) -> bool {
        let rate = if rng.random_bool(0.5) { 0.99 } else { 1.01 };
        self.clocks[0].set_rate(rate);
        true
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
