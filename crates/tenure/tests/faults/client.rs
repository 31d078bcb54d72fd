//! A client process: what it does, and how it writes that down.

/// One server or several.
mod connect;
/// Callers that want permits.
mod permits;
/// Operations counted, and those that took too long.
mod tally;
/// The work of a process with an async runtime.
mod tasks;
/// The work of a process without one.
mod threads;
/// A guard, and what is written down about it.
mod track;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure::CancellationToken;
use tenure_testkit::{FencedRegister, Recorder, Seed};

pub use connect::{Access, Manner};
use tally::Tally;

/// The lock that everybody wants.
pub const HOT: &str = "hot";
/// One of those that replicas confirm, where there are replicas, and that everybody wants too.
pub const SAFE_HOT: &str = "safe:hot";
/// What the names of all of these begin with.
pub const SAFE: &str = "safe:";
/// So few that they are wanted at once, now and then.
pub const SAFE_COUNT: u32 = 50;
/// How many callers of a process wait for the hot lock where clients do nothing else.
const CROWD_TASKS: usize = 5;
/// How long each of them waits at most: longer than any queue should need.
const CROWD_LIMIT: Duration = Duration::from_secs(30);
/// Their lease.
pub const CROWD_TTL: Duration = Duration::from_secs(2);
/// How often a client that rests checks whether to continue.
const REST_TICK: Duration = Duration::from_millis(2);
/// By default, and as few and as many turns as there can be.
const TURNS_DEFAULT: u32 = 256;
const TURNS_MIXED: [u32; 3] = [0, TURNS_DEFAULT, 10_000];
/// What the name of a cold lock begins with.
pub const COLD: &str = "cold:";
pub const COLD_COUNT: u32 = 1_000;
/// What the name of a lock with a long lease begins with. Such a lease is never left to end by
/// itself, so whatever stays behind is seen.
pub const LONG: &str = "long:";
const LONG_COUNT: u32 = 300;
pub const LONG_TTL: Duration = Duration::from_secs(30);
/// What the name of a lock begins with that is held to the end of the longest lease there can be,
/// where that is a short one: a client that is granted it meanwhile is a second holder.
pub const SLOW: &str = "slow:";
pub const SLOW_COUNT: u32 = 5;
/// Short, so that leases really end.
const TTL_MIN_MS: u64 = 150;
pub const TTL_MAX_MS: u64 = 600;
/// A lock that everybody wants with the same lease and for a moment only, so that it is handed on
/// inside a process again and again.
pub const BRISK: &str = "brisk";
const BRISK_TTL: Duration = Duration::from_millis(300);
/// A lock that is given strictly in order.
pub const FAIR: &str = "fair";
/// What the name of a semaphore begins with.
pub const PERMITS: &str = "permits:";
pub const SEMAPHORE_COUNT: u32 = 2;
/// How many permits each of them has.
pub const PERMITS_MAX: u32 = 3;
/// How long a client that ends may take to give back what it holds. An attempt whose answer was lost
/// is watched until it can no longer land, which a clock that was set makes longer.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// How often a client tells what it has done; what it did since is lost when it is killed.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// How a client process is to be.
#[derive(Debug, Clone)]
pub struct Order {
    pub number: u64,
    pub access: Access,
    pub dir: PathBuf,
    pub seed: u64,
    pub blocking: bool,
    pub role: Role,
    /// Whether its hand-offs differ from the default ones.
    pub mixed_turns: bool,
}

/// What a client process does all day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A bit of everything.
    Work,
    /// Several callers wait for the hot lock, one after the other.
    Crowd,
}

impl Order {
    const VARIABLE: &str = "TENURE_FAULTS_CLIENT";

    /// The order for this process, if it is a client.
    pub fn from_env() -> Option<Self> {
        let text = std::env::var(Self::VARIABLE).ok()?;
        let mut parts = text.splitn(10, ' ');
        let mut part = || parts.next().expect("an order has ten parts");
        let millis = |text: &str| Duration::from_millis(text.parse().unwrap());
        Some(Self {
            number: part().parse().unwrap(),
            seed: part().parse().unwrap(),
            blocking: part() == "blocking",
            role: if part() == "crowd" {
                Role::Crowd
            } else {
                Role::Work
            },
            mixed_turns: part() == "mixed",
            access: Access {
                longest_ttl: millis(part()),
                after_failover: Some(millis(part())).filter(|wait| !wait.is_zero()),
                replicas: part().parse().unwrap(),
                urls: part().split('|').map(str::to_owned).collect(),
            },
            dir: part().into(),
        })
    }

    /// This program again, as a client.
    pub fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let flavour = if self.blocking { "blocking" } else { "async" };
        let role = match self.role {
            Role::Work => "work",
            Role::Crowd => "crowd",
        };
        let turns = if self.mixed_turns { "mixed" } else { "default" };
        let longest_ttl_ms = self.access.longest_ttl.as_millis();
        let wait_ms = self.access.after_failover.map_or(0, |it| it.as_millis());
        let (urls, dir) = (self.access.urls.join("|"), self.dir.display());
        let (number, seed, replicas) = (self.number, self.seed, self.access.replicas);
        command.env(
            Self::VARIABLE,
            format!(
                "{number} {seed} {flavour} {role} {turns} {longest_ttl_ms} {wait_ms} {replicas} {urls} {dir}"
            ),
        );
        command
    }
}

/// What all tasks of a client process share.
struct Context {
    number: u64,
    seed: Seed,
    recorder: Recorder,
    register: FencedRegister,
    tally: Tally,
    /// The end is near: begin nothing more, let go of everything.
    finish: CancellationToken,
    /// Told to keep its connections and to ask for nothing.
    rests: AtomicBool,
    role: Role,
    access: Access,
    manner: Manner,
}

impl Context {
    /// Whether to ask for nothing at the moment.
    fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed) && !self.finish.is_cancelled()
    }
}

pub fn run(order: &Order) {
    let seed = Seed::new(order.seed).part(order.number);
    let unreachable_ms = seed.rng().random_range(500..2_000);
    let context = Arc::new(Context {
        number: order.number,
        seed,
        recorder: Recorder::create(&order.dir, order.number),
        register: FencedRegister::open(&order.dir),
        tally: Tally::new(),
        finish: CancellationToken::new(),
        rests: AtomicBool::new(false),
        role: order.role,
        access: order.access.clone(),
        manner: Manner {
            name: format!("client-{}", order.number),
            unreachable_after: Duration::from_millis(unreachable_ms),
            hand_off_time: hand_off_time(&mut seed.rng()),
            hand_off_turns: if order.mixed_turns {
                TURNS_MIXED[usize::try_from(order.number).unwrap_or(0) % TURNS_MIXED.len()]
            } else {
                TURNS_DEFAULT
            },
        },
    });
    let told = Arc::clone(&context);
    thread::spawn(move || obey(&told));
    let telling = Arc::clone(&context);
    thread::spawn(move || {
        loop {
            thread::sleep(TELL_EVERY);
            telling.tally.tell();
        }
    });
    if order.blocking {
        threads::run(&context);
    } else {
        tasks::run(&context);
    }
    context.tally.tell();
}

/// Does what the test process says, until that ends or says that this one shall.
fn obey(context: &Context) {
    for line in std::io::stdin().lines() {
        match line.as_deref() {
            Ok("rest") => context.rests.store(true, Ordering::Relaxed),
            Ok("work") => context.rests.store(false, Ordering::Relaxed),
            _ => break,
        }
    }
    context.finish.cancel();
}

/// By default a chain lasts too short a time to be hit by anything.
fn hand_off_time(rng: &mut StdRng) -> Duration {
    Duration::from_millis([10, 100, 1_000][rng.random_range(0..3)])
}

/// Connects, however often that fails: the client may have been started amid a fault.
fn connect<T>(context: &Context, mut connect: impl FnMut() -> tenure::Result<T>) -> Option<T> {
    while !context.finish.is_cancelled() {
        if let Ok(client) = connect() {
            return Some(client);
        }
    }
    None
}

/// What one acquisition shall be like; all of it random.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent draws, not states"
)]
struct Wish {
    lock: String,
    ttl: Duration,
    /// Whether it waits for its turn.
    fair: bool,
    /// How many replicas confirm it.
    replicas: u32,
    fixed: bool,
    way: Way,
    hold: Duration,
    nested: u32,
    ensures: bool,
    detaches: bool,
    changes_register: bool,
    end: End,
}

/// Which kind of lock a worker wants.
#[derive(Clone, Copy)]
enum Eager {
    No,
    Hot,
    Brisk,
    Crowd,
    Fair,
    Permits,
}

enum Way {
    Try,
    Within(Duration),
    Wait,
    /// Waits, but the caller goes away after this long.
    Cancel(Duration),
}

enum End {
    Release,
    Drop,
    /// Releases, but does not wait for the answer.
    ReleaseCancelled,
}

impl Wish {
    fn for_one(eager: Eager, context: &Context, rng: &mut StdRng) -> Self {
        let replicas = context.access.replicas;
        match eager {
            Eager::No | Eager::Hot if replicas > 0 && rng.random_bool(0.5) => {
                Self::safe(rng, matches!(eager, Eager::Hot), replicas)
            }
            Eager::No if rng.random_bool(0.1) => match context.access.shortened() {
                None => Self::long(rng),
                Some(longest_ttl) => Self::slow(rng, longest_ttl),
            },
            Eager::No => Self::random(rng, false),
            Eager::Hot => Self::random(rng, true),
            Eager::Brisk => Self::brisk(rng),
            Eager::Crowd => Self::crowd(rng),
            Eager::Fair | Eager::Permits => Self::fair(rng),
        }
    }

    fn random(rng: &mut StdRng, hot: bool) -> Self {
        let ttl = Duration::from_millis(rng.random_range(TTL_MIN_MS..=TTL_MAX_MS));
        let fixed = rng.random_bool(0.1);
        Self {
            lock: if hot {
                HOT.into()
            } else {
                format!("{COLD}{}", rng.random_range(0..COLD_COUNT))
            },
            ttl,
            fair: false,
            replicas: 0,
            fixed,
            way: Way::random(rng, hot),
            hold: random_hold(rng, ttl, fixed),
            nested: if rng.random_bool(0.1) {
                rng.random_range(1..=3)
            } else {
                0
            },
            ensures: rng.random_bool(0.1),
            detaches: rng.random_bool(0.04),
            changes_register: hot && rng.random_bool(0.6),
            end: match rng.random_range(0..100) {
                0..70 => End::Release,
                70..97 => End::Drop,
                _ => End::ReleaseCancelled,
            },
        }
    }

    /// A lock that replicas confirm.
    fn safe(rng: &mut StdRng, hot: bool, replicas: u32) -> Self {
        Self {
            lock: if hot {
                SAFE_HOT.into()
            } else {
                format!("{SAFE}{}", rng.random_range(0..SAFE_COUNT))
            },
            replicas,
            changes_register: false,
            ..Self::random(rng, hot)
        }
    }

    /// Mostly the shortest hold there is, and now and then one that loses its lease.
    fn brisk(rng: &mut StdRng) -> Self {
        let held = if rng.random_bool(0.01) { 2.0 } else { 0.0 };
        Self {
            lock: BRISK.into(),
            ttl: BRISK_TTL,
            fixed: false,
            hold: BRISK_TTL.mul_f64(held * rng.random_range(0.0..1.0)),
            changes_register: false,
            ..Self::random(rng, true)
        }
    }

    /// A lock whose waiters are served in order.
    fn fair(rng: &mut StdRng) -> Self {
        Self {
            lock: FAIR.into(),
            fair: true,
            nested: 0,
            changes_register: false,
            ..Self::random(rng, true)
        }
    }

    /// One of many who wait in line for a moment with the lock.
    fn crowd(rng: &mut StdRng) -> Self {
        Self {
            ttl: CROWD_TTL,
            fixed: false,
            way: Way::Within(CROWD_LIMIT),
            hold: Duration::from_millis(rng.random_range(0..5)),
            nested: 0,
            detaches: false,
            changes_register: false,
            end: End::Release,
            ..Self::random(rng, true)
        }
    }

    /// A lease that is neither renewed nor released before its end.
    fn slow(rng: &mut StdRng, ttl: Duration) -> Self {
        Self {
            lock: format!("{SLOW}{}", rng.random_range(0..SLOW_COUNT)),
            ttl,
            fixed: true,
            hold: ttl * 2,
            nested: 0,
            detaches: false,
            changes_register: false,
            ..Self::random(rng, true)
        }
    }

    /// A short hold with a long lease.
    fn long(rng: &mut StdRng) -> Self {
        Self {
            lock: format!("{LONG}{}", rng.random_range(0..LONG_COUNT)),
            ttl: LONG_TTL,
            hold: Duration::ZERO,
            detaches: false,
            changes_register: false,
            ..Self::random(rng, true)
        }
    }
}

impl Way {
    fn random(rng: &mut StdRng, hot: bool) -> Self {
        let millis = |millis: u64| Duration::from_millis(millis);
        match rng.random_range(0..100) {
            0..30 => Self::Try,
            30..60 => Self::Within(millis(rng.random_range(0..800))),
            60..80 => Self::Wait,
            // Half of them while the first question is on its way.
            80..90 => Self::Cancel(Duration::from_micros(rng.random_range(0..3_000))),
            _ => Self::Cancel(millis(rng.random_range(0..if hot { 300 } else { 30 }))),
        }
    }
}

/// Mostly short, so that many operations fit, and at times three times as long as the lease.
fn random_hold(rng: &mut StdRng, ttl: Duration, fixed: bool) -> Duration {
    let most = match rng.random_range(0..100) {
        // Only by holding on to its end can a lease without renewal be believed for too long.
        _ if fixed && rng.random_bool(0.3) => ttl * 2,
        0..92 => Duration::from_millis(2),
        92..96 => ttl,
        _ => ttl * 3,
    };
    most.mul_f64(rng.random_range(0.0..1.0))
}
