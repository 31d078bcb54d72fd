//! What changed between two polls of the locks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tenure::Locks;
use utoipa::ToSchema;

use crate::holders::{ClientReport, LockReport, printable};
use crate::time::{self, moment};

/// How many locks are looked at again one by one, and how many of them at once.
const LOOKED_AT_AGAIN_MAX: usize = 100;
const AT_ONCE: usize = 10;

/// The locks as of the last poll.
#[derive(Debug, Default)]
pub struct Known {
    locks: BTreeMap<String, LockReport>,
    /// Whether they were polled before.
    begun: bool,
}

/// What changed since the last poll.
#[derive(Debug, Default)]
pub struct News {
    /// The events.
    pub changes: Vec<Change>,
    /// The names of locks that changed.
    pub changed: Vec<String>,
    /// The names of locks without holder and waiters.
    pub gone: Vec<String>,
}

#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It was held when watching started.
    Held,
    Taken,
    /// Its lease or fence changed.
    HandedOn,
    /// The number of waiters changed.
    Waiting,
    /// The lease was renewed.
    Renewed,
    /// An administrator released it.
    Forced,
    /// Released, lost or expired: it is free.
    Ended,
}

/// One event.
#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Change {
    pub at: String,
    pub event: Event,
    pub name: String,
    pub lease_id: Option<String>,
    pub fence: Option<u64>,
    /// The holder, or the last one.
    pub who: String,
    pub holder: Option<ClientReport>,
    pub waiting: u64,
    pub held_ms: Option<u64>,
    #[serde(skip)]
    pub since: Option<String>,
    /// When the lease expires, or would have expired.
    #[serde(skip)]
    pub ends: Option<SystemTime>,
}

impl Known {
    /// The locks as of the last poll.
    pub fn locks(&self) -> &BTreeMap<String, LockReport> {
        &self.locks
    }

    /// The held locks that are missing here.
    pub fn missing(&self, now: &[LockReport]) -> Vec<String> {
        let listed: BTreeSet<&str> = now.iter().map(|lock| lock.name.as_str()).collect();
        let held = self.locks.values().filter(|lock| lock.held);
        let missing = held.filter(|lock| !listed.contains(lock.name.as_str()));
        missing.map(|lock| lock.name.clone()).collect()
    }

    /// Updates the locks and returns what changed.
    pub fn update(&mut self, now: Vec<LockReport>) -> News {
        let steadied = now.into_iter().map(|lock| self.steadied(lock));
        let now: BTreeMap<String, LockReport> =
            steadied.map(|lock| (lock.name.clone(), lock)).collect();
        let mut news = News::default();
        for lock in now.values() {
            self.compare(lock, &mut news);
        }
        for (name, before) in &self.locks {
            if now.contains_key(name) {
                continue;
            }
            news.gone.push(name.clone());
            if before.held {
                news.changes.push(Change::of(Event::Ended, before));
            }
            if before.waiting > 0 {
                let mut idle = before.clone();
                idle.waiting = 0;
                news.changes.push(Change::of(Event::Waiting, &idle));
            }
        }
        self.locks = now;
        self.begun = true;
        news
    }

    fn compare(&self, lock: &LockReport, news: &mut News) {
        let before = self.locks.get(&lock.name);
        let was_held = before.is_some_and(|before| before.held);
        let is_same = before.is_some_and(|before| is_same_hold(before, lock));
        let changes = &mut news.changes;
        match (was_held, lock.held) {
            (false, true) if self.begun => changes.push(Change::of(Event::Taken, lock)),
            (false, true) => changes.push(Change::of(Event::Held, lock)),
            (true, true) if !is_same => changes.push(Change::of(Event::HandedOn, lock)),
            (true, true) if before.is_some_and(|before| before.ends < lock.ends) => {
                changes.push(Change::of(Event::Renewed, lock));
            }
            (true, false) => changes.extend(before.map(|it| Change::of(Event::Ended, it))),
            _ => {}
        }
        if before.map_or(0, |before| before.waiting) != lock.waiting {
            changes.push(Change::of(Event::Waiting, lock));
        }
        if !before.is_some_and(|before| before.is_as(lock)) {
            news.changed.push(lock.name.clone());
        }
    }

    /// The report with those moments of before that differ only because answers took more or less
    /// time: otherwise every lock would change with every look.
    fn steadied(&self, mut lock: LockReport) -> LockReport {
        let before = self.locks.get(&lock.name);
        let Some(before) = before.filter(|before| is_same_hold(before, &lock)) else {
            return lock;
        };
        if lock.since.is_some() && before.since.is_some() {
            lock.since.clone_from(&before.since);
        }
        let (Some(was), Some(is)) = (before.ends, lock.ends) else {
            return lock;
        };
        let apart = is
            .duration_since(was)
            .unwrap_or_else(|error| error.duration());
        let ttl = Duration::from_millis(lock.ttl_ms.unwrap_or(0));
        if apart < STEADY_WITHIN + ttl / STEADY_PART {
            lock.ends = Some(was);
            lock.expires_at.clone_from(&before.expires_at);
        }
        lock
    }
}

/// How far the end of a lease may wobble and still count as the same: so much, and one part in so many
/// of its ttl. A renewal moves it by a third.
const STEADY_WITHIN: Duration = Duration::from_millis(100);
const STEADY_PART: u32 = 50;

/// Whether the holder is the same. A lease that is handed off inside a process keeps its id,
/// but not its fence; of that, only what the holder's client says is exact.
fn is_same_hold(before: &LockReport, now: &LockReport) -> bool {
    let is_exact = before.held_ms.is_some() && now.held_ms.is_some();
    before.lease_id == now.lease_id && (!is_exact || before.fence == now.fence)
}

/// Checks locks that no client's record lists any more. Some are still held: records are up to half
/// a second old. If very many ended at once, only some are checked.
/// Holders are taken from the `listed` locks where possible: records may list thousands of leases,
/// so only those of other clients are read.
pub async fn look_again(
    locks: &Locks,
    names: Vec<String>,
    listed: &[LockReport],
) -> Vec<LockReport> {
    let clients: HashMap<&str, &ClientReport> = listed
        .iter()
        .flat_map(LockReport::clients)
        .map(|client| (client.client.as_str(), client))
        .collect();
    let looks = names.into_iter().take(LOOKED_AT_AGAIN_MAX).map(|name| {
        let (lock, clients) = (locks.lock(&name), &clients);
        async move {
            let found = lock.holder_brief().await.ok().flatten()?;
            let client = found.lease.client().map(|client| client.to_string());
            if let Some(client) = client.and_then(|client| clients.get(client.as_str())) {
                let report = LockReport::of_holder(&name, Some(&found), &[]);
                return Some(report.by(ClientReport::clone(client)));
            }
            let found = lock.holder().await.ok().flatten()?;
            Some(LockReport::of_holder(&name, Some(&found), &[]))
        }
    });
    let looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    looks.filter_map(|found| async { found }).collect().await
}

impl Change {
    /// An event of this lock, now.
    pub fn of(event: Event, lock: &LockReport) -> Self {
        Self {
            at: moment(SystemTime::now()),
            event,
            name: lock.name.clone(),
            lease_id: lock.lease_id.clone(),
            fence: lock.fence,
            who: lock.who.clone(),
            holder: lock.holder.clone(),
            waiting: lock.waiting,
            held_ms: lock.held_ms,
            since: lock.since.clone(),
            ends: lock.ends,
        }
    }
}

/// As in `2026-11-15T03:00:01.000Z taken nightly: web-3:4121 (backup.sh), fence 7`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match self.event {
            Event::Held => "held",
            Event::Taken => "taken",
            Event::HandedOn => "handed on",
            Event::Waiting => "waiting",
            Event::Renewed => "renewed",
            Event::Forced => "forced",
            Event::Ended => "ended",
        };
        let name = printable(&self.name);
        write!(f, "{} {event:<9} {name}: ", self.at)?;
        match (self.event, self.held_ms) {
            (Event::Waiting, _) => write!(f, "{} waiting", self.waiting)?,
            (Event::Ended, Some(held)) => {
                let held = time::show(Duration::from_millis(held));
                write!(f, "{}, after {held}", self.who)?;
            }
            _ => f.write_str(&self.who)?,
        }
        match self.fence.filter(|_| self.event != Event::Waiting) {
            Some(fence) => write!(f, ", fence {fence}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, lease: &str, fence: u64) -> LockReport {
        let mut lock = LockReport::of_holder(name, None, &[]);
        lock.held = true;
        lock.lease_id = Some(lease.to_owned());
        lock.fence = Some(fence);
        lock.held_ms = Some(700);
        lock
    }

    fn events(changes: &[Change]) -> Vec<(Event, &str)> {
        let events = changes.iter();
        events.map(|it| (it.event, it.name.as_str())).collect()
    }

    #[test]
    fn each_difference_is_an_event() {
        let mut known = Known::default();
        let begun = known.update(vec![lock("a", "1", 1)]).changes;
        assert_eq!(events(&begun), [(Event::Held, "a")]);
        assert!(known.update(vec![lock("a", "1", 1)]).changes.is_empty());
        let handed_off = known
            .update(vec![lock("a", "1", 2), lock("b", "2", 1)])
            .changes;
        assert_eq!(
            events(&handed_off),
            [(Event::HandedOn, "a"), (Event::Taken, "b")]
        );
        let mut waited_for = lock("a", "3", 3);
        waited_for.waiting = 2;
        let changes = known.update(vec![waited_for]).changes;
        let expected = [
            (Event::HandedOn, "a"),
            (Event::Waiting, "a"),
            (Event::Ended, "b"),
        ];
        assert_eq!(events(&changes), expected);
        assert_eq!(known.missing(&[]), ["a"]);
        let ended = known.update(Vec::new()).changes;
        assert_eq!(events(&ended), [(Event::Ended, "a"), (Event::Waiting, "a")]);
    }

    #[test]
    fn a_fence_that_is_only_an_upper_bound_is_no_other_holder() {
        let mut known = Known::default();
        let mut young = lock("a", "1", 257);
        young.held_ms = None;
        known.update(vec![young]);
        assert!(known.update(vec![lock("a", "1", 1)]).changes.is_empty());
    }

    #[test]
    fn only_a_renewal_moves_the_end() {
        let (mut known, start) = (Known::default(), SystemTime::now());
        let ends_after = |seconds: f64| {
            let mut lock = lock("a", "1", 1);
            lock.ttl_ms = Some(30_000);
            lock.ends = Some(start + Duration::from_secs_f64(seconds));
            lock.expires_at = lock.ends.map(moment);
            lock
        };
        known.update(vec![ends_after(30.0)]);
        for wobbling in [30.2, 29.9, 30.3] {
            let news = known.update(vec![ends_after(wobbling)]);
            assert!(
                news.changes.is_empty() && news.changed.is_empty(),
                "{news:?}"
            );
        }
        let news = known.update(vec![ends_after(40.0)]);
        assert_eq!(events(&news.changes), [(Event::Renewed, "a")]);
        assert_eq!(news.changed, ["a"]);
        assert_eq!(known.update(Vec::new()).gone, ["a"]);
    }
}
