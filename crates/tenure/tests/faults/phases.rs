//! What breaks in which phase of a deployment.

use std::time::Duration;

use crate::allowance::Class;
use crate::client::{LONG_TTL, Role, TTL_MAX_MS};
use crate::deployment::Deployment;
use crate::nemesis;
use crate::phase::{Aof, Clients, Clocks, Pause, Phase, Servers};

const PAUSE: Pause = 50..300;
/// Where a fault has a long tail, such as a new master that gives no locks for a while.
const LONG_PAUSE: Pause = 500..1_500;
/// For as long a clock runs too fast or too slow: as long as the phase, in a short run.
const MINUTES: Pause = 60_000..180_000;

const PROCESSES: usize = 8;
/// With five callers each they are fifty.
const CROWD_PROCESSES: usize = 10;
/// The longest lease where a lease must not be much longer than a fault.
const SHORT_TTLS: &[Duration] = &[Duration::from_millis(TTL_MAX_MS)];
/// Clients of one Redlock whose longest leases differ. It must do no harm up to 30 s, which is
/// the default.
const MIXED_TTLS: &[Duration] = &[
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(2),
    LONG_TTL,
];
/// With `after_failover` no lease may be longer than the wait; this is what they have at most.
const PATIENT_TTLS: &[Duration] = &[Duration::from_secs(1)];
/// The longest lease, and two seconds for clients to hear of a new master.
const PATIENCE: Duration = Duration::from_secs(3);

const WORKERS: Clients = Clients {
    processes: PROCESSES,
    role: Role::Work,
    longest_ttls: &[LONG_TTL],
    after_failover: None,
    replicated: true,
    mixed_turns: false,
};
const PATIENT: Clients = Clients {
    longest_ttls: PATIENT_TTLS,
    after_failover: Some(PATIENCE),
    replicated: false,
    ..WORKERS
};

const PERSISTENT: Servers = Servers {
    aof: Aof::All,
    clocks: Clocks::None,
    pair: false,
    latecomer: false,
};
const ONE_CLOCK: Servers = Servers {
    clocks: Clocks::OfOne,
    ..PERSISTENT
};
const PAIR: Servers = Servers {
    clocks: Clocks::OfOne,
    pair: true,
    ..PERSISTENT
};

const KEPT: Phase = Phase {
    name: "kept",
    percent: 0,
    least: Duration::ZERO,
    class: Class::Kept,
    servers: PERSISTENT,
    clients: WORKERS,
    lanes: &[],
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

static OF_SINGLE: [Phase; 6] = [
    Phase {
        percent: 35,
        clients: Clients {
            mixed_turns: true,
            ..WORKERS
        },
        lanes: &[(nemesis::OF_SERVER, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    Phase {
        name: "loss",
        percent: 11,
        class: Class::Lost,
        lanes: &[(nemesis::OF_DATA, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    // A lost counter is made good by the clock, and a clock set back by the counter: losing both
    // at once may break the growth of fences, and that is said in docs/guarantees.md.
    Phase {
        name: "clock",
        percent: 11,
        class: Class::ClockSet,
        servers: ONE_CLOCK,
        lanes: &[(nemesis::OF_CLOCK, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    // Another server takes the place of the first, with older data, and clients do not notice.
    Phase {
        name: "swapped",
        percent: 12,
        class: Class::FailedOver,
        servers: PAIR,
        clients: Clients {
            longest_ttls: SHORT_TTLS,
            ..WORKERS
        },
        lanes: &[
            (nemesis::OF_SWAPS, PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
            (nemesis::OF_RATE, MINUTES),
        ],
        ..KEPT
    },
    // The same, and no two clients may hold one lock.
    Phase {
        name: "patient",
        percent: 18,
        least: Duration::from_secs(5),
        class: Class::FailedOver,
        servers: PAIR,
        clients: PATIENT,
        lanes: &[
            (nemesis::OF_PATIENT_SWAPS, LONG_PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
            (nemesis::OF_RATE, MINUTES),
        ],
    },
    Phase {
        name: "crowd",
        percent: 13,
        least: Duration::from_secs(3),
        clients: Clients {
            processes: CROWD_PROCESSES,
            role: Role::Crowd,
            ..WORKERS
        },
        lanes: &[(nemesis::OF_CROWD, PAUSE)],
        ..KEPT
    },
];

static OF_REDLOCK: [Phase; 4] = [
    Phase {
        percent: 42,
        servers: ONE_CLOCK,
        lanes: &[(nemesis::OF_NODES, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    // Three of five nodes keep nothing: what stops two clients from holding a lock is only that a
    // node which has just started has no vote, whatever its clock and each client's `longest_ttl`.
    Phase {
        name: "forgetful",
        percent: 34,
        class: Class::Forgetful,
        servers: Servers {
            aof: Aof::Mixed,
            clocks: Clocks::OfTheForgetful,
            ..PERSISTENT
        },
        clients: Clients {
            longest_ttls: MIXED_TTLS,
            ..WORKERS
        },
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
        servers: ONE_CLOCK,
        lanes: &[
            (nemesis::OF_NODE_CLOCK, PAUSE),
            (nemesis::OF_CLIENTS, PAUSE),
        ],
        ..KEPT
    },
];

static OF_SENTINEL: [Phase; 3] = [
    Phase {
        percent: 24,
        lanes: &[(nemesis::OF_SENTINELS, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    Phase {
        name: "failover",
        percent: 38,
        class: Class::FailedOver,
        servers: ONE_CLOCK,
        lanes: &[
            (nemesis::OF_MASTER, PAUSE),
            (nemesis::OF_CLIENTS, LONG_PAUSE),
            (nemesis::OF_RATE, MINUTES),
        ],
        ..KEPT
    },
    Phase {
        name: "patient",
        percent: 38,
        least: Duration::from_secs(3),
        class: Class::FailedOver,
        servers: ONE_CLOCK,
        clients: PATIENT,
        lanes: &[
            (nemesis::OF_PATIENT_MASTERS, LONG_PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
            (nemesis::OF_RATE, MINUTES),
        ],
    },
];

static OF_CLUSTER: [Phase; 3] = [
    Phase {
        percent: 30,
        lanes: &[(nemesis::OF_CLUSTER, PAUSE), (nemesis::OF_CLIENTS, PAUSE)],
        ..KEPT
    },
    Phase {
        name: "failover",
        percent: 35,
        class: Class::FailedOver,
        servers: ONE_CLOCK,
        lanes: &[
            (nemesis::OF_SHARDS, PAUSE),
            (nemesis::OF_CLIENTS, LONG_PAUSE),
            (nemesis::OF_RATE, MINUTES),
        ],
        ..KEPT
    },
    Phase {
        name: "patient",
        percent: 35,
        least: Duration::from_secs(3),
        class: Class::FailedOver,
        servers: Servers {
            latecomer: true,
            ..ONE_CLOCK
        },
        clients: PATIENT,
        lanes: &[
            (nemesis::OF_PATIENT_SHARDS, LONG_PAUSE),
            (nemesis::OF_PROCESSES, LONG_PAUSE),
            (nemesis::OF_RATE, MINUTES),
        ],
    },
];
