//! What is looked at when all is healed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure::{ErrorKind, Layout, Tenure};
use tenure_testkit::check::{self, Violation};
use tenure_testkit::history::{Event, Op, Outcome, until_ns};
use tenure_testkit::{Access, History, Recorder, RedisServer, RespClient};

use crate::client::{BRISK, COLD, COLD_COUNT, HOT, LONG, TTL_MAX_MS};
use crate::fleet::Finished;
use crate::layout;

/// The number of the client that looks whether every lock can be had.
const JUDGE: u64 = 999_999;
/// After healing every lock can be had within the longest lease and a second.
const LIVE_LIMIT: Duration = Duration::from_millis(TTL_MAX_MS + 1_000);
/// How much later than the next grant a holder may notice its loss: ten times what it takes on two
/// cores shared by all. A client that is killed between detaching and adopting a lease had no time
/// to write down that it let go.
const NOTICE_TOLERANCE: Duration = Duration::from_millis(2_500);

/// How far the fences of one lease may lie apart: as often as it may be handed on.
const HAND_OFF_TURNS: u64 = 256;

/// What one checker found.
pub struct Verdict {
    pub check: &'static str,
    pub violations: Vec<Violation>,
    /// Whether it must hold in a phase that loses data or steps the clock.
    pub always: bool,
}

/// Leases and places in queues of clients that ended in order: those must have left nothing.
pub fn leftovers(server: &RedisServer, layout: Layout, finished: &Finished) -> Vec<Violation> {
    let mut client = server.client();
    let is_gone = |owner: &str| {
        let client = layout::client_of(owner);
        !client.is_some_and(|client| finished.tidy.contains(&client))
    };
    let holder = |client: &mut RespClient, key: &str| {
        let lock = key == HOT || key == BRISK || key.starts_with(COLD) || key.starts_with(LONG);
        lock.then(|| layout::holder(client, layout, key))?
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
    violations.extend(check::orphans(
        &mut client,
        "tenure:queue:*",
        waiter,
        is_gone,
    ));
    violations
}

/// Keys that would stay for ever.
pub fn immortals(server: &RedisServer) -> Vec<Violation> {
    check::immortal_keys(&mut server.client(), "*", layout::is_kept)
}

/// Takes and releases every lock once, and writes that down.
pub fn take_every_lock(server: &RedisServer, layout: Layout, dir: &Path) {
    let recorder = Arc::new(Recorder::create(dir, JUDGE));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let tenure = Tenure::connect(layout::url(&server.url(), layout))
            .await
            .unwrap();
        let names = (0..COLD_COUNT).map(|number| format!("{COLD}{number}"));
        let tasks: Vec<_> = names
            .chain([HOT.to_owned(), BRISK.to_owned()])
            .map(|name| tokio::spawn(take(tenure.clone(), name, Arc::clone(&recorder))))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        tenure.shutdown(Duration::from_secs(5)).await;
    });
}

async fn take(tenure: Tenure, name: String, recorder: Arc<Recorder>) {
    let call = recorder.acquire(0, &name);
    match tenure.lock(&name).acquire_within(LIVE_LIMIT * 2).await {
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

pub fn verdicts(
    history: &History,
    journal: &[Access],
    healed_ns: u64,
    leftovers: Vec<Violation>,
    finished: &Finished,
    sound: bool,
) -> Vec<Verdict> {
    let verdict = |check, always, violations| Verdict {
        check,
        violations,
        always,
    };
    // A long lease of a client that was killed goes on for longer than anybody would wait here.
    let short = history
        .events
        .iter()
        .filter(|event| !event.lock.starts_with(LONG));
    let short = History::new(short.cloned().collect(), Vec::new());
    let mut liveness = check::liveness(&short, healed_ns, LIVE_LIMIT);
    liveness.extend(leftovers);
    vec![
        verdict("C1 held once", false, check::exclusion(history)),
        verdict("C2 fences grow", true, fences(history, sound)),
        verdict("C3 resource whole", true, check::resource(journal)),
        verdict("C5 free after healing", true, liveness),
        verdict(
            "C6 loss noticed",
            false,
            check::loss(history, NOTICE_TOLERANCE),
        ),
        verdict(
            "clients unharmed",
            true,
            as_violations("crash", &finished.crashes),
        ),
        verdict(
            "calls in time and reason",
            true,
            as_violations("complaint", &finished.complaints),
        ),
    ]
}

/// Where leases are deleted, a process may hand one on before it knows. Whoever is handed it has a
/// fence below that of the new holder elsewhere, and the resource refuses it. So there only the
/// grants of the server must grow in time; each fence is used once in any case.
fn fences(history: &History, sound: bool) -> Vec<Violation> {
    let mut violations = check::fences(history);
    if !sound {
        let granted = History::new(granted_by_the_server(history), Vec::new());
        violations.retain(|violation| violation.rule != check::FENCE_WENT_BACK);
        let mut back = check::fences(&granted);
        back.retain(|violation| violation.rule == check::FENCE_WENT_BACK);
        violations.extend(back);
    }
    violations
}

/// All grants but those with a fence that an earlier one had reserved for its process: no other
/// process has a fence in between.
fn granted_by_the_server(history: &History) -> Vec<Event> {
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
    granted
}

fn as_violations(rule: &'static str, lines: &[String]) -> Vec<Violation> {
    let violation = |line: &String| Violation {
        rule,
        subject: "client".into(),
        evidence: vec![line.clone()],
    };
    lines.iter().map(violation).collect()
}
