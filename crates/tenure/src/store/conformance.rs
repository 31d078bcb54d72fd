//! Compares the Redis store with the state machine: random histories on both, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tenure_testkit::{ClockShim, RedisServer, RespClient};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::memory::machine::{Effect, Machine, MachineReply, ModeUnchanged};
use super::redis::RedisStore;
use super::{
    AcquireReply, Arrival, Attempt, Event, Failure, LatchReply, LeaseSpec, ModeReply,
    PermitRequest, ReleaseReply, RenewReply, RunRequest, RunState, RunStep, SeveralReply, Slots,
    Store, TurnReply, Wish,
};
use crate::error::ErrorKind;
use crate::layout::Layout;
use crate::lease::{ClientId, Fence, LeaseId};
use crate::mode::Mode;
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending_work::Pending;
use crate::stats::Stats;
use crate::url::Target;

/// Long enough that nothing expires during the steps, because the machine's time and the server's
/// differ. Short enough for locks to be acquired by transaction.
const TTL: Duration = Duration::from_secs(60);
/// How far both clocks are advanced at once: a lease survives it once, but not twice.
const AGE: Duration = Duration::from_secs(36);
/// How many fences an attempt reserves, unless it is plain.
const FENCES: u32 = 3;
/// Leases that are requested, and one more that never is.
const LEASES: usize = 4;
/// The limit of every semaphore, unless a step changes it.
const LIMIT: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire {
        name: usize,
        lease: usize,
        queue: bool,
    },
    /// On the caller's own task: by transaction where the lock is a candidate.
    AcquireHere {
        name: usize,
        lease: usize,
    },
    /// Both names in one step, each with its lease, in this order or the other.
    AcquireSeveral {
        leases: [usize; 2],
        is_reversed: bool,
    },
    Turn {
        name: usize,
        place: Option<usize>,
    },
    Renew {
        name: usize,
        lease: usize,
    },
    Release {
        name: usize,
        lease: usize,
    },
    Adopt {
        name: usize,
        from: usize,
        lease: usize,
    },
    /// Goes on as a lease with the other mode, if only one of the two is shared.
    ChangeMode {
        name: usize,
        from: usize,
        lease: usize,
    },
    /// Only of semaphores.
    Resize {
        name: usize,
        limit: u32,
    },
    Look {
        name: usize,
    },
    /// A party arrives at a latch, or a look at one; only where waiters are in order.
    Arrive {
        name: usize,
        need: u32,
        party: Option<u32>,
    },
    /// A step of a run, only of locks whose waiters are in order.
    Run {
        name: usize,
        lease: usize,
        step: RunStep,
    },
    /// The holder of a lock is gone, but not those who wait for it.
    Vanish {
        name: usize,
    },
    /// Time passes, by both clocks.
    Age,
}

/// The reply to a step, in terms that both sides share.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Granted,
    /// Granted with the fence of the readers that have the lock already.
    Joined,
    Permits(Slots),
    Refused(ErrorKind),
    Offered(String),
    Busy(String),
    Yes,
    No(Option<String>),
    Shared {
        readers: u64,
        waiters: u64,
    },
    Held {
        by: String,
        readers: BTreeSet<LeaseId>,
        meta: BTreeMap<String, String>,
    },
    Run(RunState),
    Latch(LatchReply),
    Free,
}

struct Both {
    kind: Leases,
    machine: Machine,
    clock: ClockShim,
    store: Arc<RedisStore>,
    redis: RespClient,
    names: Vec<LockName>,
    leases: Vec<LeaseId>,
    /// The last fence of each name, on the one side and the other.
    fences: Vec<[u64; 2]>,
    /// The fence of the last readers of each name, on the one side and the other.
    phases: Vec<[Option<u64>; 2]>,
    now_us: u64,
    offers: Vec<String>,
    /// Leases that have waited for a name and were not released since.
    queued: BTreeSet<(usize, usize)>,
}

#[test]
fn redis_does_what_the_machine_does() {
    check_histories(Layout::Native, Leases::Exclusive);
}

#[test]
fn redis_shares_locks_as_the_machine_does() {
    check_histories(Layout::Native, Leases::HalfShared);
}

#[test]
fn redis_keeps_the_order_of_waiters_as_the_machine_does() {
    check_histories(Layout::Native, Leases::HalfInOrder);
}

#[test]
fn redis_gives_permits_as_the_machine_does() {
    check_histories(Layout::Native, Leases::Permits);
}

#[test]
fn redissons_layout_does_what_the_machine_does() {
    check_histories(Layout::Redisson, Leases::Exclusive);
}

/// How the leases of a history share their locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leases {
    Exclusive,
    /// Those with an odd number.
    HalfShared,
    /// Those with an odd number are granted strictly in order.
    HalfInOrder,
    /// Of semaphores: one permit each, but the third wants two, and the last may overtake.
    Permits,
}

fn check_histories(layout: Layout, leases: Leases) {
    let clock = ClockShim::compile().expect("a C compiler");
    let server = RedisServer::builder().clock(clock.clone()).start();
    // As many subscribers as waiters: otherwise the server would take some of them for dead, and
    // shorten offers.
    let channels = ["tenure:wake:{plain}", "tenure:wake:{tag}ged"];
    let mut ears: Vec<_> = (0..LEASES).map(|_| server.client()).collect();
    for ear in &mut ears {
        ear.subscribe(&channels);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let cases = if std::env::var_os("TENURE_LONG").is_some() {
        2_000
    } else {
        200
    };
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    });
    let histories = proptest::collection::vec(step(), 1..40);
    let checked = runner.run(&histories, |steps| {
        server.client().command(&["FLUSHALL"]);
        runtime.block_on(follow(&server, &clock, (layout, leases), &steps))
    });
    checked.unwrap();
    let transactions = server.command_calls("exec");
    let by_transaction = layout == Layout::Native && leases == Leases::Exclusive;
    assert_eq!(transactions > 0, by_transaction, "{transactions}");
}

fn step() -> impl Strategy<Value = Step> {
    let (name, lease) = (0..2_usize, 0..LEASES);
    prop_oneof![
        4 => (name.clone(), lease.clone(), any::<bool>())
            .prop_map(|(name, lease, queue)| Step::Acquire { name, lease, queue }),
        3 => (name.clone(), lease.clone())
            // Those without metadata: a lease is requested with the same metadata every time.
            .prop_map(|(name, lease)| Step::AcquireHere { name, lease: lease | 1 }),
        3 => (lease.clone(), lease.clone(), any::<bool>())
            // As above.
            .prop_map(|(a, b, is_reversed)| {
                Step::AcquireSeveral { leases: [a | 1, b | 1], is_reversed }
            }),
        3 => (name.clone(), proptest::option::of(lease.clone()))
            .prop_map(|(name, place)| Step::Turn { name, place }),
        1 => (name.clone(), lease.clone()).prop_map(|(name, lease)| Step::Renew { name, lease }),
        1 => (name.clone(), lease.clone(), lease.clone())
            .prop_map(|(name, from, lease)| {
                // A lease without metadata that adopts one with metadata would have to keep them
                // when it is acquired again, which no client does.
                let alike = if lease % 2 == from % 2 { lease } else { from };
                Step::Adopt { name, from, lease: alike }
            }),
        2 => (name.clone(), lease.clone(), lease.clone())
            .prop_map(|(name, from, lease)| Step::ChangeMode { name, from, lease }),
        3 => (name.clone(), lease.clone()).prop_map(|(name, lease)| Step::Release { name, lease }),
        1 => (name.clone(), 1..=LIMIT).prop_map(|(name, limit)| Step::Resize { name, limit }),
        1 => name.clone().prop_map(|name| Step::Look { name }),
        3 => (name.clone(), 1..3_u32, proptest::option::of(0..3_u32))
            .prop_map(|(name, need, party)| Step::Arrive { name, need, party }),
        3 => (name.clone(), lease.clone(), run_step())
            .prop_map(|(name, lease, step)| Step::Run { name, lease, step }),
        2 => name.prop_map(|name| Step::Vanish { name }),
        2 => Just(Step::Age),
    ]
}

fn run_step() -> impl Strategy<Value = RunStep> {
    // Remembered for as long as a lease lasts.
    let remember = TTL;
    prop_oneof![
        1 => Just(RunStep::Look),
        3 => any::<bool>().prop_map(move |retry| RunStep::Begin { retry, remember }),
        2 => Just(RunStep::Complete { remember }),
        1 => Just(RunStep::Forget),
    ]
}

async fn follow(
    server: &RedisServer,
    clock: &ClockShim,
    kind: (Layout, Leases),
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let (events, mut happened) = tokio::sync::mpsc::unbounded_channel();
    let mut both = Both::new(server, clock, kind, events).await;
    for step in steps {
        let (machine, redis) = both.take(*step).await;
        prop_assert_eq!(&machine, &redis, "at {:?}", step);
        // If the machine offers the lock, Redis must publish the offer too.
        for expected in std::mem::take(&mut both.offers) {
            let heard =
                tokio::time::timeout(Duration::from_secs(5), next_turn(&mut happened)).await;
            let Ok(Some(Event::Offered {
                name,
                offered_to,
                grant,
            })) = heard
            else {
                return Err(TestCaseError::fail(format!(
                    "{expected} was not woken: {heard:?}"
                )));
            };
            prop_assert_eq!(offered_to.as_str(), expected);
            if let Some(grant) = grant {
                let name = both.names.iter().position(|it| *it == name).unwrap();
                both.granted(name, 1, grant.fence.get());
            }
        }
    }
    Ok(())
}

/// The next event, skipping those that a lock is free, which the machine does not have, and those that
/// wake readers, of which Redis sends one for all.
async fn next_turn(events: &mut UnboundedReceiver<Event>) -> Option<Event> {
    loop {
        match events.recv().await {
            Some(Event::Opened { .. }) => {}
            Some(Event::Offered { offered_to, .. }) if offered_to.is_phase() => {}
            event => return event,
        }
    }
}

impl Both {
    async fn new(
        server: &RedisServer,
        clock: &ClockShim,
        (layout, leases): (Layout, Leases),
        events: UnboundedSender<Event>,
    ) -> Self {
        let url = format!("{}?layout={layout}", server.url());
        let Target::Redis(target) = Target::parse(&url).unwrap() else {
            panic!("not a server")
        };
        let store = RedisStore::new(target, Arc::new(Stats::default()), None);
        store.start(
            ClientId::fresh(),
            events,
            Pending::default(),
            Arc::new(|| true),
        );
        let names = vec![
            LockName::new("plain").unwrap(),
            LockName::new("{tag}ged").unwrap(),
        ];
        for name in &names {
            store.subscribe(name, soon()).await.unwrap();
        }
        let client = ClientId::fresh();
        Self {
            kind: leases,
            machine: Machine::default(),
            clock: clock.clone(),
            store,
            redis: server.client(),
            // Not zero, because zeros before a number are marks.
            leases: (10..=10 + LEASES as u64)
                .map(|n| match layout {
                    _ if leases == Leases::Permits => {
                        LeaseId::fresh_of_permit(layout, &client, n, TTL)
                    }
                    Layout::Native if n % 2 == 1 && leases == Leases::HalfShared => {
                        LeaseId::fresh_shared(layout, &client, n, TTL)
                    }
                    // Half of them can take an offer as a grant.
                    Layout::Native if n % 2 == 1 => {
                        LeaseId::fresh_to_be_offered(layout, &client, n, TTL)
                    }
                    _ => LeaseId::fresh(layout, &client, n, TTL),
                })
                .collect(),
            fences: vec![[0; 2]; names.len()],
            phases: vec![[None; 2]; names.len()],
            names,
            now_us: 1_000_000,
            offers: Vec::new(),
            queued: BTreeSet::new(),
        }
    }

    async fn take(&mut self, step: Step) -> (Said, Said) {
        self.now_us += 1_000;
        match step {
            Step::Acquire { name, lease, queue } => self.acquire(name, lease, queue).await,
            Step::AcquireHere { name, lease } => self.acquire_on_caller(name, lease).await,
            Step::AcquireSeveral {
                leases,
                is_reversed,
            } => self.acquire_several(leases, is_reversed).await,
            // Only locks have these.
            Step::Turn { .. } | Step::Adopt { .. } | Step::ChangeMode { .. }
                if self.kind == Leases::Permits =>
            {
                (Said::Free, Said::Free)
            }
            Step::Resize { name, limit } => self.resize(name, limit).await,
            Step::Turn { name, place } => self.turn(name, place).await,
            Step::Renew { name, lease } => self.renew(name, lease).await,
            Step::Release { name, lease } => self.release(name, lease).await,
            Step::Adopt { name, from, lease } => self.adopt(name, from, lease).await,
            Step::ChangeMode { name, from, lease } => self.change_mode(name, from, lease).await,
            Step::Look { name } => self.inspect(name).await,
            Step::Arrive { name, need, party } => self.arrive(name, need, party).await,
            Step::Run { name, lease, step } => self.run_step(name, lease, step).await,
            Step::Vanish { name } => self.vanish(name),
            Step::Age => self.age().await,
        }
    }

    /// Waiters leave first: the server would count them as dead by then, and the machine's never
    /// die.
    async fn age(&mut self) -> (Said, Said) {
        for (name, lease) in self.queued.clone() {
            let (machine, redis) = self.release(name, lease).await;
            if machine != redis {
                return (machine, redis);
            }
        }
        self.clock.step_forward(AGE);
        self.now_us += u64::try_from(AGE.as_micros()).unwrap();
        (Said::Yes, Said::Yes)
    }

    async fn acquire(&mut self, name: usize, lease: usize, queue: bool) -> (Said, Said) {
        let meta = BTreeMap::from([("of".to_owned(), lease.to_string())]);
        // Where leases change their mode there are none: no lease that has any is changed into.
        let keeps_mode = matches!(self.kind, Leases::Exclusive | Leases::HalfInOrder);
        let has_meta = lease.is_multiple_of(2) && keeps_mode;
        let meta = if has_meta { meta } else { BTreeMap::new() };
        let attempt = Attempt {
            held: LeaseSpec {
                has_meta: !meta.is_empty(),
                ..self.held(name, lease)
            },
            meta: Arc::new(meta),
            fences: FENCES,
            queue,
            wish: self.wish(lease),
        };
        let asked = self.store.acquire(&attempt, soon()).await;
        if queue && matches!(asked, Ok(AcquireReply::Busy(_))) {
            self.queued.insert((name, lease));
        }
        self.attempted(name, &attempt, asked)
    }

    fn plain_attempt(&self, name: usize, lease: usize) -> Attempt {
        Attempt {
            held: LeaseSpec {
                has_meta: false,
                ..self.held(name, lease)
            },
            meta: Arc::default(),
            fences: 1,
            queue: false,
            wish: self.wish(lease),
        }
    }

    async fn acquire_several(&mut self, leases: [usize; 2], is_reversed: bool) -> (Said, Said) {
        let mut places = [0, 1];
        if is_reversed {
            places.reverse();
        }
        let attempts = places.map(|name| Attempt {
            wish: Wish::Lock,
            ..self.plain_attempt(name, leases[name])
        });
        if !self
            .store
            .acquires_together(&[&self.names[0], &self.names[1]])
        {
            // In Redisson's layout they are acquired one by one.
            return (Said::Free, Said::Free);
        }
        if attempts
            .iter()
            .any(|attempt| attempt.held.mode != Mode::Exclusive)
        {
            // Shared ones are, too, and permits.
            return (Said::Free, Said::Free);
        }
        let asked = self.store.acquire_several(&attempts, soon()).await.unwrap();
        let mut effects = Vec::new();
        let machine = self
            .machine
            .acquire_several(self.now_us, &attempts, &mut effects);
        let machine = match machine {
            Ok(fences) => self.granted_several(places, 0, &fences),
            Err((at, holder, _)) => Said::Busy(format!("{at}: {holder}")),
        };
        let redis = match asked {
            SeveralReply::Granted { fences, .. } => self.granted_several(places, 1, &fences),
            SeveralReply::Busy { at, busy } => Said::Busy(format!("{at}: {}", busy.holder)),
            SeveralReply::NotYet(not_yet) => panic!("{}", not_yet.error),
        };
        (machine, redis)
    }

    fn granted_several(&mut self, places: [usize; 2], side: usize, fences: &[Fence]) -> Said {
        assert_eq!(fences.len(), places.len());
        for (name, fence) in places.into_iter().zip(fences) {
            self.granted(name, side, fence.get());
        }
        Said::Granted
    }

    async fn acquire_on_caller(&mut self, name: usize, lease: usize) -> (Said, Said) {
        let attempt = self.plain_attempt(name, lease);
        let here = match self.store.acquire_on_caller(&attempt) {
            Some((_, asking)) => asking.await.ok(),
            None => None,
        };
        // A transaction that finds anything unusual leaves the lock to the script.
        let is_own = |asked: &AcquireReply| matches!(asked, AcquireReply::Busy(busy) if busy.holder == attempt.held.id);
        let asked = match here.filter(|asked| !is_own(asked)) {
            Some(asked) => Ok(asked),
            None => self.store.acquire(&attempt, soon()).await,
        };
        self.attempted(name, &attempt, asked)
    }

    fn attempted(
        &mut self,
        name: usize,
        attempt: &Attempt,
        asked: Result<AcquireReply, Failure>,
    ) -> (Said, Said) {
        let mut effects = Vec::new();
        let machine = match self.machine.acquire(self.now_us, attempt, &mut effects) {
            MachineReply::Granted(fence) => {
                self.granted_as(attempt.held.mode, name, 0, fence.get())
            }
            MachineReply::Permitted { fence, slots } => {
                self.granted(name, 0, fence.get());
                Said::Permits(slots)
            }
            MachineReply::Busy { holder, .. } => Said::Busy(shown(&holder)),
            MachineReply::OtherLimit(_) => Said::Refused(ErrorKind::Mismatch),
            MachineReply::Lock(_) => Said::Refused(ErrorKind::NotALock),
        };
        self.expect_offers(effects);
        let redis = match asked {
            Ok(AcquireReply::Granted { fence, slots, .. }) if !slots.is_empty() => {
                self.granted(name, 1, fence.get());
                Said::Permits(slots)
            }
            Ok(AcquireReply::Granted { fence, .. }) => {
                self.granted_as(attempt.held.mode, name, 1, fence.get())
            }
            Ok(AcquireReply::Busy(busy)) => Said::Busy(shown(&busy.holder)),
            Ok(AcquireReply::NotYet(not_yet)) => panic!("{}", not_yet.error),
            Err(failure) => Said::Refused(failure.error.kind()),
        };
        (machine, redis)
    }

    async fn resize(&mut self, name: usize, limit: u32) -> (Said, Said) {
        if self.kind != Leases::Permits {
            return (Said::Free, Said::Free);
        }
        let lock = &self.names[name];
        let mut effects = Vec::new();
        let machine = self.machine.resize(self.now_us, lock, limit, &mut effects);
        self.expect_offers(effects);
        let redis = self.store.resize(&self.names[name], limit, soon()).await;
        let say = |is_resized| if is_resized { Said::Yes } else { Said::Free };
        (say(machine.is_ok()), say(redis.is_ok()))
    }

    /// A third name, because a latch would keep all locks of its name from being acquired.
    async fn arrive(&mut self, name: usize, need: u32, party: Option<u32>) -> (Said, Said) {
        if self.kind != Leases::HalfInOrder {
            return (Said::Free, Said::Free);
        }
        // Now and then of a name that is a lock.
        let name = match need {
            1 if party.is_none() => self.names[name].clone(),
            _ => LockName::new(format!("latch{name}")).unwrap(),
        };
        let arrival = Arrival {
            name,
            need,
            remember: TTL,
            party: party.map(|party| party.to_string()),
        };
        let mut effects = Vec::new();
        let machine = self.machine.arrive(self.now_us, &arrival, &mut effects);
        let redis = self.store.arrive(&arrival, soon()).await.unwrap();
        (Said::Latch(machine), Said::Latch(redis))
    }

    async fn run_step(&mut self, name: usize, lease: usize, step: RunStep) -> (Said, Said) {
        if self.kind != Leases::HalfInOrder {
            return (Said::Free, Said::Free);
        }
        let held = self.held(name, lease);
        let request = RunRequest { held, step };
        let machine = self.machine.run_step(self.now_us, &request);
        let redis = self.store.run_step(&request, soon()).await.unwrap();
        (Said::Run(machine), Said::Run(redis))
    }

    fn wish(&self, lease: usize) -> Wish {
        match self.kind {
            Leases::Permits => Wish::Permits(PermitRequest {
                limit: LIMIT,
                count: if lease == 2 { 2 } else { 1 },
                overtakes: lease == LEASES - 1,
            }),
            Leases::HalfInOrder if lease % 2 == 1 => Wish::InOrder,
            Leases::HalfInOrder | Leases::Exclusive | Leases::HalfShared => Wish::Lock,
        }
    }

    /// The key of the lock disappears, as if its holder had died.
    fn vanish(&mut self, name: usize) -> (Said, Said) {
        if matches!(self.kind, Leases::Exclusive | Leases::HalfInOrder) {
            self.machine.vanish(&self.names[name]);
            self.redis.command(&["DEL", self.names[name].as_str()]);
        }
        (Said::Yes, Said::Yes)
    }

    /// The lease that holds the lock. Not if it also waits, which happens only here, by adoption:
    /// the two sides differ on its place.
    fn for_turn(&mut self, name: usize) -> usize {
        let holder = self.machine.inspect(self.now_us, &self.names[name]);
        let held_by = |lease: &usize| {
            let id = &self.leases[*lease];
            holder.as_ref().is_some_and(|holder| holder.id == *id)
        };
        let found = (0..LEASES).find(held_by);
        found
            .filter(|lease| !self.queued.contains(&(name, *lease)))
            .unwrap_or(LEASES)
    }

    async fn turn(&mut self, name: usize, place: Option<usize>) -> (Said, Said) {
        let lease = self.for_turn(name);
        let held = self.held(name, lease);
        let place = place.map(|place| self.leases[place].clone());
        let mut effects = Vec::new();
        let turn = self
            .machine
            .turn(self.now_us, &held, FENCES, place.as_ref(), &mut effects);
        let machine = match turn {
            Ok(fence) => self.granted(name, 0, fence.get()),
            Err(release) => released(release),
        };
        self.expect_offers(effects);
        let turn = self.store.turn(&held, FENCES, place.as_ref(), soon()).await;
        let redis = match turn.unwrap() {
            TurnReply::Again { fence, .. } => self.granted(name, 1, fence.get()),
            TurnReply::Passed(release) => released(release),
        };
        (machine, redis)
    }

    async fn renew(&mut self, name: usize, lease: usize) -> (Said, Said) {
        let held = self.held(name, lease);
        let machine = match self.machine.renew(self.now_us, &held) {
            Ok(()) => Said::Yes,
            Err(absent) => Said::No(absent.taken_by.as_ref().map(shown)),
        };
        let redis = match self.store.renew(&held, false, soon()).await.unwrap() {
            RenewReply::Until { .. } => Said::Yes,
            RenewReply::NotHeld(absent) => Said::No(absent.taken_by.as_ref().map(shown)),
            RenewReply::Unconfirmed(failure) => panic!("{:?}", failure.error),
        };
        (machine, redis)
    }

    async fn adopt(&mut self, name: usize, from: usize, lease: usize) -> (Said, Said) {
        let (held, from) = (self.held(name, lease), self.leases[from].clone());
        let machine = match self
            .machine
            .adopt(self.now_us, &from, &held, &mut Vec::new())
        {
            Ok(()) => Said::Yes,
            Err(absent) => Said::No(absent.taken_by.as_ref().map(shown)),
        };
        let redis = match self.store.adopt(&from, &held, soon()).await.unwrap() {
            RenewReply::Until { .. } => Said::Yes,
            RenewReply::NotHeld(absent) => Said::No(absent.taken_by.as_ref().map(shown)),
            RenewReply::Unconfirmed(failure) => panic!("{:?}", failure.error),
        };
        (machine, redis)
    }

    async fn change_mode(&mut self, name: usize, from: usize, lease: usize) -> (Said, Said) {
        let (held, before) = (self.held(name, lease), self.held(name, from));
        // Only here does a lease wait for a lock that it holds already.
        let waits = [from, lease].map(|it| self.queued.contains(&(name, it)));
        if held.mode == before.mode || waits.contains(&true) {
            return (Said::Free, Said::Free);
        }
        let mut effects = Vec::new();
        let changed = self
            .machine
            .change_mode(self.now_us, &before.id, &held, &mut effects);
        let machine = match changed {
            Ok(fence) => self.granted_as(held.mode, name, 0, fence.get()),
            Err(ModeUnchanged::Shared { readers, waiters }) => Said::Shared { readers, waiters },
            Err(ModeUnchanged::Absent(absent)) => Said::No(absent.taken_by.as_ref().map(shown)),
        };
        self.expect_offers(effects);
        let changed = self.store.change_mode(&before.id, &held, soon()).await;
        let redis = match changed.unwrap() {
            ModeReply::Changed { fence, .. } => self.granted_as(held.mode, name, 1, fence.get()),
            ModeReply::Shared { readers, waiters } => Said::Shared { readers, waiters },
            ModeReply::NotHeld(absent) => Said::No(absent.taken_by.as_ref().map(shown)),
        };
        (machine, redis)
    }

    async fn release(&mut self, name: usize, lease: usize) -> (Said, Said) {
        let held = self.held(name, lease);
        self.queued.remove(&(name, lease));
        let mut effects = Vec::new();
        let machine = self
            .machine
            .release(self.now_us, &held, (None, None), &mut effects);
        self.expect_offers(effects);
        let redis = self.store.release(&held, None, soon()).await.unwrap();
        (released(machine), released(redis))
    }

    fn expect_offers(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Offered { to, .. } = effect {
                self.offers.push(to.to_string());
            }
        }
    }

    async fn inspect(&mut self, name: usize) -> (Said, Said) {
        let say = |found: Option<super::LockState>| match found {
            None => Said::Free,
            Some(found) => Said::Held {
                by: shown(&found.id),
                readers: found.readers.shown.into_iter().collect(),
                meta: found.meta,
            },
        };
        let machine = say(self.machine.inspect(self.now_us, &self.names[name]));
        let redis = say(self.store.inspect(&self.names[name], soon()).await.unwrap());
        (machine, redis)
    }

    /// A reader may have the fence of the grant before.
    fn granted_as(&mut self, mode: Mode, name: usize, side: usize, fence: u64) -> Said {
        let is_shared = mode == Mode::Shared;
        if is_shared && self.phases[name][side] == Some(fence) {
            return Said::Joined;
        }
        self.phases[name][side] = is_shared.then_some(fence);
        self.granted(name, side, fence)
    }

    /// Fences differ, but each grant gets a greater one than all before.
    fn granted(&mut self, name: usize, side: usize, fence: u64) -> Said {
        let last = std::mem::replace(&mut self.fences[name][side], fence);
        assert!(fence > last, "the fence went from {last} to {fence}");
        Said::Granted
    }

    fn held(&self, name: usize, lease: usize) -> LeaseSpec {
        LeaseSpec::new(self.names[name].clone(), self.leases[lease].clone(), TTL)
    }
}

fn released(release: ReleaseReply) -> Said {
    match release {
        ReleaseReply::WasHeld { offered_to: None } => Said::Yes,
        ReleaseReply::WasHeld {
            offered_to: Some(to),
        }
        | ReleaseReply::Passed { to, .. } => Said::Offered(to.to_string()),
        ReleaseReply::NotHeld => Said::No(None),
    }
}

/// A lease id. Readers of a phase have none together, and fences differ.
fn shown(id: &LeaseId) -> String {
    if id.is_phase() {
        return "readers".to_owned();
    }
    id.to_string()
}

fn soon() -> Moment {
    Clock::Boot.now() + Duration::from_secs(5)
}
