//! What is looked at when all is healed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tenure::{ErrorKind, Layout, Lock, Unordered};
use tenure_testkit::check::{self, Patience, Violation};
use tenure_testkit::history::{Event, Fault, Mode, Op, Outcome, now_ns, until_ns};
use tenure_testkit::{FencedRegister, History, Recorder, RedisServer, RespClient};

use crate::allowance::{self, Check, Class, Footing};
use crate::client::{
    Access, BRISK, COLD, COLD_COUNT, FAIR, HOT, LONG, PERMITS, PERMITS_MAX, SAFE, SAFE_COUNT,
    SAFE_HOT, SEMAPHORE_COUNT, SLOW, SLOW_COUNT, TTL_MAX_MS,
};
use crate::deployment::Deployment;
use crate::fleet::Finished;
use crate::layout;
use crate::nemesis::{self, Kind};
use crate::stage::Stage;

/// The number of the client that looks whether every lock can be had.
const JUDGE: u64 = 999_999;
/// After healing every lock can be had within the longest lease, and much more than a few of them at
/// once take on five nodes that share two cores.
const LIVE_LIMIT: Duration = Duration::from_millis(TTL_MAX_MS + 4_000);
/// A thousand at once would wait for each other on a crowded machine.
const TAKEN_AT_ONCE: usize = 50;
/// How much later than the next grant a holder may notice its loss: more than ten times what it takes
/// on two cores shared by all. A client that is killed between detaching a lease and the answer to
/// its adoption, which are three seconds at most, had no time to write down that it let go.
const NOTICE_TOLERANCE: Duration = Duration::from_secs(5);

/// Longer than a node of a Redlock that may have forgotten something has no vote.
const REST_LIMIT: Duration = Duration::from_secs(40);

/// How long a node may take to do what it was told by a client that has ended.
const LET_GO_LIMIT: Duration = Duration::from_secs(2);

/// How long clients may wait for a lock: five times what was seen on two cores shared by all.
const PATIENCE: Patience = Patience {
    while_free: Duration::from_secs(5),
    total: Duration::from_secs(20),
    recovery: Duration::ZERO,
};
/// For how long a node that came back empty has no vote: its age is told in whole seconds.
const REST: Duration = Duration::from_secs(3);
/// Faults that keep no client from a free lock for long. A foreign holder is in the history itself.
/// Broken connections, [`nemesis::OF_CLIENTS`], are such faults too: they hit a few processes for
/// less than a second, and the others continue.
const HARMLESS: &[Kind] = &[
    Kind::ScriptFlush,
    Kind::ForeignHolder,
    Kind::DeleteLock,
    Kind::DeleteFence,
    Kind::ForceRelease,
    Kind::PauseSentinel,
    Kind::KillSentinel,
];

/// How much later a caller must have come so that it certainly came later: more than any stall of this
/// machine, and more than a place lasts whose process is silent.
const ARRIVAL: Duration = Duration::from_secs(7);

/// How far the fences of one lease may lie apart: as often as it may be handed on.
const HAND_OFF_TURNS: u64 = 256;

/// What one checker found.
pub struct Verdict {
    pub check: Check,
    pub footing: Footing,
    pub violations: Vec<Violation>,
    /// Whether a violation fails the run.
    pub must_hold: bool,
}

/// Leases and places in queues of clients that ended in order: those must have left nothing.
pub fn leftovers(stage: &Stage, layout: Layout, finished: &Finished) -> Vec<Violation> {
    let found = left_now(stage, layout, finished);
    if found.is_empty() || stage.keepers_needed() == 1 {
        return found;
    }
    // A client that ends has told all nodes of a Redlock to let go, and does not wait for those that
    // are slow. What they do not let go now stays until its lease ends, and some are long.
    thread::sleep(LET_GO_LIMIT);
    left_now(stage, layout, finished)
}

fn left_now(stage: &Stage, layout: Layout, finished: &Finished) -> Vec<Violation> {
    let mut found: BTreeMap<String, Vec<Violation>> = BTreeMap::new();
    for server in stage.keepers() {
        for violation in left_on(server, layout, finished) {
            let same = found.entry(violation.subject.clone()).or_default();
            same.push(violation);
        }
    }
    // A node of several that could not be asked in time to let go may do so a little later.
    let needed = stage.keepers_needed();
    let held = found.into_values().filter(|same| same.len() >= needed);
    held.flatten().collect()
}

fn left_on(server: &RedisServer, layout: Layout, finished: &Finished) -> Vec<Violation> {
    let mut client = server.client();
    let is_gone = |owner: &str| {
        let client = layout::client_of(owner);
        !client.is_some_and(|client| finished.tidy.contains(&client))
    };
    let holder = |client: &mut RespClient, key: &str| {
        let is_lock = key == HOT
            || key == BRISK
            || key == FAIR
            || [COLD, LONG, SAFE, SLOW]
                .iter()
                .any(|it| key.starts_with(it));
        is_lock.then(|| layout::holder(client, layout, key))?
    };
    let mut violations = check::orphans(&mut client, "*", holder, is_gone);
    let waiter = |client: &mut RespClient, key: &str| {
        let waiters = client.command(&["ZRANGE", key, "0", "-1"]);
        let tidy = waiters
            .array()
            .iter()
            .find(|waiter| !is_gone(waiter.text()));
        tidy.map(|waiter| waiter.text().to_owned())
    };
    // Those that wait, and those that have permits.
    for sets in ["tenure:queue:*", "tenure:permits:*"] {
        violations.extend(check::orphans(&mut client, sets, waiter, is_gone));
    }
    violations
}

/// Keys that would stay for ever.
pub fn immortals(stage: &Stage) -> Vec<Violation> {
    let servers = stage.keepers().into_iter();
    let of_one =
        |server: &RedisServer| check::immortal_keys(&mut server.client(), "*", layout::is_kept);
    servers.flat_map(of_one).collect()
}

/// Takes and releases every lock once, and writes that down. Tells from when on that was tried.
pub fn take_every_lock(access: &Access, dir: &Path) -> u64 {
    let recorder = Arc::new(Recorder::create(dir, JUDGE));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let locks = access.connect(None).await.unwrap();
        if access.urls.len() > 1 {
            // This client is new. Where nodes of a Redlock restarted, it may not know how old the
            // others are, and wait for one rest.
            let _ = locks.lock(HOT).wait(REST_LIMIT).acquire().await;
        }
        let begun_ns = now_ns();
        for names in every_lock(access).chunks(TAKEN_AT_ONCE) {
            let taken = names.iter().map(|name| {
                let mut lock = locks.lock(name);
                if name.starts_with(SAFE) {
                    lock = lock.replicas(access.replicas);
                }
                tokio::spawn(take(lock, name.clone(), Arc::clone(&recorder)))
            });
            for task in taken.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        }
        locks.shutdown(Duration::from_secs(5)).await;
        take_all_permits(access, &recorder).await;
        begun_ns
    })
}

/// All locks that clients take, but for those with long leases.
fn every_lock(access: &Access) -> Vec<String> {
    let cold = (0..COLD_COUNT).map(|number| format!("{COLD}{number}"));
    let mut names: Vec<String> = cold.collect();
    names.extend([HOT.to_owned(), BRISK.to_owned()]);
    if access.counts_and_orders() {
        names.push(FAIR.to_owned());
    }
    if access.shortened().is_some() {
        names.extend((0..SLOW_COUNT).map(|number| format!("{SLOW}{number}")));
    }
    if access.replicas > 0 {
        names.push(SAFE_HOT.to_owned());
        names.extend((0..SAFE_COUNT).map(|number| format!("{SAFE}{number}")));
    }
    names
}

async fn take(lock: Lock<Unordered>, name: String, recorder: Arc<Recorder>) {
    let call = recorder.acquire(0, &name);
    match lock.wait(LIVE_LIMIT * 2).acquire().await {
        Ok(guard) => {
            let until = until_ns(|| guard.remaining());
            let hold = call.granted(Some(guard.fence().get()), until);
            let call = recorder.release(0, &name, hold, until);
            let _ = guard.release().await;
            call.end(Outcome::Released);
        }
        Err(error) if error.kind() == ErrorKind::Busy => call.end(Outcome::Busy),
        Err(_) => call.end(Outcome::Failed),
    }
}

/// Takes all permits of each semaphore at once: no slot may be missing.
async fn take_all_permits(access: &Access, recorder: &Recorder) {
    if !access.counts_and_orders() {
        return;
    }
    let Some(tenure) = access.connect_to_one(None).await.unwrap() else {
        return;
    };
    for name in semaphores() {
        let call = recorder.acquire(0, &name).mode(Mode::Permit);
        let asked_ns = call.called_ns();
        let semaphore = tenure.semaphore(&name, PERMITS_MAX).wait(LIVE_LIMIT * 2);
        let permit = match semaphore.acquire_many(PERMITS_MAX).await {
            Ok(permit) => permit,
            Err(error) if error.kind() == ErrorKind::Busy => {
                call.end(Outcome::Busy);
                continue;
            }
            Err(_) => {
                call.end(Outcome::Failed);
                continue;
            }
        };
        let (fence, until) = (permit.fence().get(), until_ns(|| permit.remaining()));
        let mut held = vec![(name.clone(), call.granted(Some(fence), until))];
        for slot in permit.slots() {
            let slot = format!("{name}#{slot}");
            let call = recorder.acquire(0, &slot).called_at(asked_ns);
            held.push((slot, call.granted(Some(fence), until)));
        }
        let ending = held.iter();
        let ending = ending.map(|(name, hold)| recorder.release(0, name, *hold, until));
        let ending: Vec<_> = ending.collect();
        let _ = permit.release().await;
        for call in ending {
            call.end(Outcome::Released);
        }
    }
    tenure.shutdown(Duration::from_secs(5)).await;
}

fn semaphores() -> impl Iterator<Item = String> {
    (0..SEMAPHORE_COUNT).map(|number| format!("{PERMITS}{number}"))
}

type Found = (Footing, Check, Vec<Violation>);

/// What is judged.
pub struct Evidence<'a> {
    pub history: &'a History,
    pub dir: &'a Path,
    pub healed_ns: u64,
    pub leftovers: Vec<Violation>,
    pub finished: &'a Finished,
}

impl Evidence<'_> {
    /// What each checker found, and whether that was allowed in a phase of this class.
    pub fn verdicts(self, plain: Footing, class: Class) -> Vec<Verdict> {
        let crashes = as_violations("crash", &self.finished.crashes);
        let complaints = as_violations("complaint", &self.finished.complaints);
        let mut found = self.of_locks(plain, class, |name| !name.starts_with(SAFE));
        let slots = semaphores();
        let slots = slots.flat_map(|name| check::slots(self.history, &name, PERMITS_MAX as usize));
        found.push((plain, Check::HeldOnce, slots.collect()));
        if class == Class::Kept {
            // Elsewhere the server may lose the queue.
            found.push((plain, Check::InOrder, self.passed_waiters()));
        }
        found.extend([
            (plain, Check::ResourceWhole, self.resource()),
            (plain, Check::ClientsUnharmed, crashes),
            (plain, Check::CallsInTime, complaints),
        ]);
        if let Footing::Plain(deployment @ (Deployment::Sentinel | Deployment::Cluster)) = plain {
            let replicated = Footing::Replicated(deployment);
            found.extend(self.of_locks(replicated, class, |name| name.starts_with(SAFE)));
        }
        let verdict = |(footing, check, violations)| Verdict {
            check,
            footing,
            violations,
            must_hold: allowance::must_hold(footing, class, check),
        };
        found.into_iter().map(verdict).collect()
    }

    /// What became of some of the locks.
    fn of_locks(
        &self,
        footing: Footing,
        class: Class,
        is_one: impl Fn(&str) -> bool,
    ) -> Vec<Found> {
        let events = self.history.events.iter();
        let events = events.filter(|event| is_one(&event.lock)).cloned();
        let history = History::new(events.collect(), self.history.faults.clone());
        let leftovers = self.leftovers.iter();
        let leftovers = leftovers.filter(|violation| is_one(&violation.subject));
        let (went_back, other) = fences(&history);
        let (granted_went_back, _) = fences(&granted_by_the_server(&history));
        vec![
            (footing, Check::HeldOnce, check::exclusion(&history)),
            (footing, Check::FencesUnique, other),
            (footing, Check::FencesGrow, went_back),
            (footing, Check::GrantedFencesGrow, granted_went_back),
            (footing, Check::FreeAfterHealing, self.not_free(&history)),
            (
                footing,
                Check::WaitsBounded,
                overlong_waits(&history, class),
            ),
            (
                footing,
                Check::NothingLeftOver,
                leftovers.cloned().collect(),
            ),
            (
                footing,
                Check::LossNoticed,
                check::loss(&history, NOTICE_TOLERANCE),
            ),
        ]
    }

    /// Waiters of the fair lock that were passed although nothing disturbed them.
    fn passed_waiters(&self) -> Vec<Violation> {
        check::order(self.history, FAIR, ARRIVAL, hinders)
    }

    /// The register is changed under one lock only.
    fn resource(&self) -> Vec<Violation> {
        let journal = FencedRegister::open(self.dir).journal();
        let events = self.history.events.iter();
        let hot = events.filter(|event| event.lock == HOT).cloned();
        let hot = History::new(hot.collect(), self.history.faults.clone());
        check::resource(&journal, &hot, HAND_OFF_TURNS)
    }

    fn not_free(&self, history: &History) -> Vec<Violation> {
        let short = with_short_leases(history, Vec::new());
        check::liveness(&short, self.healed_ns, LIVE_LIMIT)
    }
}

/// Waits of living clients that were too long.
fn overlong_waits(history: &History, class: Class) -> Vec<Violation> {
    let mut faults = history.faults.clone();
    let mut patience = PATIENCE;
    match class {
        // What was held when a clock was set back is kept for that much longer, without any notification.
        Class::ClockSet => {
            let is_set_back = |fault: &&mut Fault| fault.kind == Kind::ClockBack.name();
            for fault in faults.iter_mut().filter(is_set_back) {
                fault.end_ns = u64::MAX;
            }
        }
        Class::Forgetful => patience.recovery = REST,
        Class::Kept | Class::Lost | Class::FailedOver => {}
    }
    let mut short = with_short_leases(history, faults);
    // Who waits for a permit waits for no slot in particular.
    short.events.retain(|event| !event.lock.contains('#'));
    check::waits(&short, patience, hinders)
}

/// Whether a fault keeps clients from a free lock, or from their places.
fn hinders(fault: &Fault) -> bool {
    let mut harmless = HARMLESS.iter().chain(nemesis::OF_CLIENTS);
    !harmless.any(|kind| kind.name() == fault.kind)
}

/// Without the locks with long leases: that of a client that was killed lasts longer than
/// the test would wait here.
fn with_short_leases(history: &History, faults: Vec<Fault>) -> History {
    let events = history.events.iter();
    let short = events.filter(|event| !event.lock.starts_with(LONG));
    History::new(short.cloned().collect(), faults)
}

/// Fences that went back in time, and those that are wrong in another way.
fn fences(history: &History) -> (Vec<Violation>, Vec<Violation>) {
    let violations = check::fences(history).into_iter();
    violations.partition(|violation| violation.rule == check::FENCE_WENT_BACK)
}

/// All grants but those with a fence that an earlier one had reserved for its process: no other
/// process has a fence in between.
///
/// Where leases are deleted, a process may hand one on before it knows. The next holder then has a
/// fence below that of the new holder elsewhere, and the resource refuses it.
fn granted_by_the_server(history: &History) -> History {
    let is_grant = |event: &&Event| event.op == Op::Acquire && event.outcome == Outcome::Granted;
    let mut grants: Vec<&Event> = history.events.iter().filter(is_grant).collect();
    grants.sort_by(|a, b| (&a.lock, a.fence).cmp(&(&b.lock, b.fence)));
    let mut granted = Vec::new();
    let mut last: Option<&Event> = None;
    for grant in grants {
        let handed_on = last.is_some_and(|last| {
            let apart = grant
                .fence
                .zip(last.fence)
                .map(|(fence, last)| fence.saturating_sub(last));
            let same = (last.client, &last.lock) == (grant.client, &grant.lock);
            same && apart.is_some_and(|apart| apart <= HAND_OFF_TURNS)
        });
        if !handed_on {
            granted.push(grant.clone());
        }
        last = Some(grant);
    }
    History::new(granted, Vec::new())
}

fn as_violations(rule: &'static str, lines: &[String]) -> Vec<Violation> {
    let violation = |line: &String| Violation {
        rule,
        subject: "client".into(),
        evidence: vec![line.clone()],
    };
    lines.iter().map(violation).collect()
}
