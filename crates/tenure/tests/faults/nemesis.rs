//! What is broken, when, and whether anybody noticed.

/// Clients, and the connections they have.
mod clients;
/// The clock of one server.
mod clock;
/// Several independent servers.
mod nodes;
/// One server, or one of several.
mod server;

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
}

use Kind::{
    BlackHole, BusyScript, ClockBack, ClockForward, CutRequest, CutServer, Delay, DeleteFence,
    DeleteLock, Dribble, DropReplies, DropRequests, FlushAll, ForceRelease, ForeignHolder,
    HoldReplies, HoldRequests, KillClient, KillConnections, KillForLong, KillServer,
    KillSubscribers, KillTwo, OutOfMemory, PauseClient, PauseServer, Refuse, Reset,
    ResetAfterRequest, RestartEmpty, ScriptFlush,
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
/// They have no append-only file: whoever is killed has forgotten everything.
pub const OF_FORGETFUL_NODES: &[Kind] = &[KillServer, KillServer, KillTwo, KillForLong, CutServer];

/// Longer than any lease, now and then.
const LASTS_MS: Range<u64> = 30..800;
/// Between two faults, so that work gets done too.
pub const PAUSE_MS: Range<u64> = 50..300;

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
            KillForLong | KillTwo | CutServer => self.logged(kind, || self.on_nodes(kind, rng)),
            kind if OF_CLIENTS.contains(&kind) => {
                let proxies = clients::some_connections(&self.fleet.slots, rng);
                self.logged(kind, || clients::on_connections(kind, &proxies, rng))
            }
            kind => self.logged(kind, || self.on_server(kind, rng)),
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

fn sleep_ms(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}
