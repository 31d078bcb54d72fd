//! What is broken, when, and whether anybody noticed.

/// Clients, and the connections they have.
mod clients;
/// The server.
mod server;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tenure_testkit::{ClockShim, Nemesis, Seed};

use crate::fleet::{Fleet, Slot};

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
}

use Kind::{
    BlackHole, BusyScript, ClockBack, ClockForward, CutRequest, Delay, DeleteFence, DeleteLock,
    Dribble, DropReplies, DropRequests, FlushAll, ForceRelease, ForeignHolder, HoldReplies,
    HoldRequests, KillClient, KillConnections, KillServer, KillSubscribers, OutOfMemory,
    PauseClient, PauseServer, Refuse, Reset, ResetAfterRequest, RestartEmpty, ScriptFlush,
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

/// Longer than any lease, now and then.
const LASTS_MS: std::ops::Range<u64> = 30..800;
/// Between two faults, so that work gets done too.
const PAUSE_MS: std::ops::Range<u64> = 50..300;

/// Breaks one thing after the other.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub fleet: &'a Fleet<'a>,
    pub log: &'a Nemesis,
    pub clock: Option<&'a ClockShim>,
    pub dir: &'a Path,
    pub number: u64,
}

impl Lane<'_> {
    /// Goes through all kinds in random order, again and again, until the time is up. Everything
    /// is whole again afterwards.
    pub fn run(self, kinds: &[Kind], seed: Seed, end: Instant) {
        let mut rng = seed.rng();
        let mut round: Vec<Kind> = Vec::new();
        let mut furthest_ns = 0;
        while Instant::now() < end {
            if round.is_empty() {
                round = kinds.to_vec();
                round.shuffle(&mut rng);
            }
            let Some(kind) = round.pop() else { return };
            if self.strike(kind, &mut rng) {
                self.fleet.count_fault();
            }
            furthest_ns = furthest_ns.max(self.clock.map_or(0, ClockShim::ahead_ns));
            sleep_ms(rng.random_range(PAUSE_MS));
        }
        self.catch_up(furthest_ns);
    }

    /// Brings the clock to the latest time it has ever shown: only then do leases end that began
    /// before it was set back.
    fn catch_up(&self, furthest_ns: i64) {
        if let Some(clock) = self.clock {
            let behind_ns = u64::try_from(furthest_ns - clock.ahead_ns()).unwrap_or(0);
            clock.step_forward(Duration::from_nanos(behind_ns));
        }
    }

    /// Does it, undoes it, writes it down; true if somebody was hit.
    fn strike(&self, kind: Kind, rng: &mut StdRng) -> bool {
        match kind {
            PauseClient | KillClient => {
                let slot = self.fleet.slots.choose(rng).unwrap();
                self.on_process(kind, slot, rng)
            }
            kind if OF_CLIENTS.contains(&kind) => {
                let count = rng.random_range(1..=3);
                let slots: Vec<&Slot> = self.fleet.slots.sample(rng, count).collect();
                self.logged(kind, || clients::on_connections(kind, &slots, rng))
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
