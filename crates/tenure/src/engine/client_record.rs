//! The record that a client publishes about itself: who it is, which leases it holds or detached,
//! and what its callers wait for. Off the acquire path: written at most twice a second, only after
//! a change, and only with leases old enough to matter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::detached::DetachedLease;
use super::kept_leases::KeptLease;
use crate::belief::Belief;
use crate::core::Core;
use crate::error::Result;
use crate::holder::{ClientRecord, LeaseRecord};
use crate::lease::{ClientId, Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::Standing;
use crate::store::{Failure, RecordChange, RecordWritten};

/// The minimum time between two writes, and the minimum age of a listed lease.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// How long a record is valid. A crashed client stays listed for that long.
const RECORD_TTL: Duration = Duration::from_secs(30);
/// How often a record is written although nothing changed.
const REFRESH: Duration = Duration::from_secs(10);
/// The same for a client that only waits. Nothing depends on its record, and a crowd of waiting
/// clients would write nothing else, so the record lives longer and is written less often.
const WAITING_RECORD_TTL: Duration = Duration::from_secs(3 * 60);
const WAITING_REFRESH: Duration = Duration::from_secs(2 * 60);
/// How many leases a record lists, oldest first. A client with more says how many more.
const LEASES_LISTED_MAX: usize = 10_000;
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// The longest time that the record of a closed client is kept because of its detached leases.
const FINAL_RECORD_TTL_MAX: Duration = Duration::from_secs(60 * 60);

type Fields = BTreeMap<String, String>;

/// Keeps the record up to date for as long as the engine runs.
pub(crate) async fn run(core: Arc<Core>) {
    let mut written = Fields::new();
    let mut written_at = core.clock.now();
    let mut failed = false;
    let me = identity_fields(&core);
    loop {
        let holds = !core.watchdog.is_idle() || !core.detached.is_empty();
        let busy = failed || holds || !written.is_empty();
        if !busy {
            core.record_changed.notified().await;
        }
        core.clock
            .sleep_until(core.clock.now() + WRITE_INTERVAL)
            .await;
        let ended = core.record_ended.lock().await;
        if *ended || core.is_closed() {
            return;
        }
        let now = core.clock.now();
        let fields = describe(&core, now);
        let is_due = now.saturating_since(written_at) >= RefreshRate::of(&written).refresh;
        // A failed write may have reached the store.
        if !failed && fields == written && (fields.is_empty() || !is_due) {
            continue;
        }
        failed = write(&core, &me, &written, &fields, now).await.is_err();
        drop(ended);
        if !failed {
            written = fields;
            written_at = now;
        }
    }
}

/// Writes the last record of a closing client. It lists the detached leases until they expire;
/// without any, the record is deleted.
pub(crate) async fn write_final(core: &Core) {
    let mut ended = core.record_ended.lock().await;
    *ended = true;
    let now = core.clock.now();
    let limit = now + WRITE_LIMIT;
    let detached = core.detached.all(now);
    if let Some(last) = detached.iter().map(|(_, lease)| lease.ends_at).max() {
        let said = detached
            .into_iter()
            .map(RecordedLease::of_detached)
            .collect();
        let mut set: Vec<_> = identity_fields(core).into_iter().collect();
        set.extend(lease_fields(core, now, said));
        let final_record = RecordChange {
            all: true,
            set,
            removed: Vec::new(),
            ttl: last.saturating_since(now).min(FINAL_RECORD_TTL_MAX),
        };
        // If this fails, the leases are still held but not listed.
        let _ = core.store.write_record(core.id, &final_record, limit).await;
        return;
    }
    let nothing = RecordChange::default();
    // If this fails, the record expires by itself. A client that never wrote one does not delete
    // it.
    if core.stats.snapshot().records_written > 0 {
        let _ = core.store.write_record(core.id, &nothing, limit).await;
    }
}

/// The records of all live clients, or of one.
pub(crate) async fn read(
    core: &Core,
    only: Option<ClientId>,
    limit: Moment,
) -> Result<Vec<ClientRecord>, Failure> {
    let records = core.store.records(only, limit).await?;
    let now_ms = core.clock.wall_micros() / 1_000;
    let parse = |(id, fields): &(ClientId, Fields)| parse(*id, fields, now_ms);
    Ok(records.iter().map(parse).collect())
}

async fn write(
    core: &Core,
    me: &Fields,
    written: &Fields,
    fields: &Fields,
    now: Moment,
) -> Result<(), Failure> {
    let limit = now + WRITE_LIMIT;
    if fields.is_empty() {
        let nothing = RecordChange::default();
        core.store.write_record(core.id, &nothing, limit).await?;
        return Ok(());
    }
    core.stats.record_written();
    let changed = |(field, value): &(&String, &String)| written.get(*field) != Some(value);
    let own = |(field, value): (&String, &String)| (field.clone(), value.clone());
    if !written.is_empty() {
        let gone = written.keys().filter(|field| !fields.contains_key(*field));
        let change = RecordChange {
            all: false,
            set: fields.iter().filter(changed).map(own).collect(),
            removed: gone.cloned().collect(),
            ttl: RefreshRate::of(fields).ttl,
        };
        let done = core.store.write_record(core.id, &change, limit).await?;
        if done == RecordWritten::Yes {
            return Ok(());
        }
    }
    let all = RecordChange {
        all: true,
        set: me.iter().chain(fields).map(own).collect(),
        removed: Vec::new(),
        ttl: RefreshRate::of(fields).ttl,
    };
    core.store.write_record(core.id, &all, limit).await?;
    Ok(())
}

/// How long a record is valid, and how often it is rewritten without a change.
struct RefreshRate {
    ttl: Duration,
    refresh: Duration,
}

impl RefreshRate {
    fn of(fields: &Fields) -> Self {
        if fields.keys().all(|field| field.starts_with("wait:")) {
            return Self {
                ttl: WAITING_RECORD_TTL,
                refresh: WAITING_REFRESH,
            };
        }
        Self {
            ttl: RECORD_TTL,
            refresh: REFRESH,
        }
    }
}

/// Who this client is: the constant part of its record.
fn identity_fields(core: &Core) -> Fields {
    let mut me = Fields::from([
        ("host".to_owned(), host_name()),
        ("pid".to_owned(), std::process::id().to_string()),
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    if let Some(name) = &core.settings.name {
        me.insert("name".to_owned(), name.clone());
    }
    for (field, value) in &core.settings.about {
        me.insert(format!("about:{field}"), value.clone());
    }
    me
}

#[cfg(unix)]
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    "unknown".to_owned()
}

/// A lease as the record lists it.
struct RecordedLease {
    name: LockName,
    id: LeaseId,
    fence: Fence,
    since: Moment,
    ttl: Duration,
    kept: bool,
}

impl RecordedLease {
    fn of_belief(belief: &Belief) -> Self {
        Self {
            name: belief.held.name.clone(),
            id: belief.held.id.clone(),
            fence: belief.fence,
            since: belief.acquired_at,
            ttl: belief.held.ttl,
            kept: false,
        }
    }

    fn of_kept(kept: &KeptLease) -> Self {
        Self {
            since: kept.since,
            kept: true,
            ..Self::of_belief(&kept.belief)
        }
    }

    fn of_detached((name, lease): (LockName, DetachedLease)) -> Self {
        Self {
            name,
            id: lease.id,
            fence: lease.fence,
            since: lease.since,
            ttl: lease.ttl,
            kept: false,
        }
    }
}

/// What this client holds or detached, and what it waits for: the changing part.
fn describe(core: &Core, now: Moment) -> Fields {
    let (oldest, count) = core.watchdog.oldest(LEASES_LISTED_MAX);
    let unnamed = count - oldest.len();
    let held = oldest
        .iter()
        .filter(|belief| belief.standing(now) != Standing::Lost);
    let held = held.map(|belief| RecordedLease::of_belief(belief));
    let detached = core
        .detached
        .all(now)
        .into_iter()
        .map(RecordedLease::of_detached);
    let kept = core.kept.all();
    let kept = kept.iter().map(RecordedLease::of_kept);
    let mut leases: Vec<RecordedLease> = held.chain(kept).chain(detached).collect();
    leases.retain(|lease| now.saturating_since(lease.since) >= WRITE_INTERVAL);
    // For one lock the last entry wins: the earlier lease has expired.
    leases.sort_by_key(|lease| lease.since);
    let more = unnamed + leases.len().saturating_sub(LEASES_LISTED_MAX);
    leases.truncate(LEASES_LISTED_MAX);
    let mut fields = lease_fields(core, now, leases);
    if more > 0 {
        fields.insert("more".to_owned(), more.to_string());
    }
    for (name, waiting) in core.queues.lengths() {
        if waiting > 0 {
            fields.insert(format!("wait:{name}"), waiting.to_string());
        }
    }
    fields
}

/// One field per lease.
fn lease_fields(core: &Core, now: Moment, leases: Vec<RecordedLease>) -> Fields {
    let now_ms = core.clock.wall_micros() / 1_000;
    let field = |lease: RecordedLease| {
        let age = now.saturating_since(lease.since);
        let since_ms = now_ms - u64::try_from(age.as_millis()).unwrap_or(0).min(now_ms);
        // Rounded up, so that clock jitter does not look like a change.
        let since_s = since_ms.div_ceil(1_000);
        let RecordedLease {
            name,
            id,
            fence,
            ttl,
            kept,
            ..
        } = lease;
        let kept = if kept { " kept" } else { "" };
        let value = format!("{id} {fence} {since_s} {}{kept}", ttl.as_millis());
        (format!("lease:{name}"), value)
    };
    leases.into_iter().map(field).collect()
}

fn parse(id: ClientId, fields: &Fields, now_ms: u64) -> ClientRecord {
    let text = |field: &str| fields.get(field).cloned();
    let mut record = ClientRecord {
        id,
        host: text("host").unwrap_or_default(),
        pid: text("pid").and_then(|pid| pid.parse().ok()).unwrap_or(0),
        name: text("name"),
        about: Fields::new(),
        version: text("version").unwrap_or_default(),
        leases: Vec::new(),
        more_leases: text("more").and_then(|more| more.parse().ok()).unwrap_or(0),
        waiting: BTreeMap::new(),
    };
    for (field, value) in fields {
        if let Some(name) = field.strip_prefix("lease:") {
            record.leases.extend(parse_lease(name, value, now_ms));
        } else if let Some(name) = field.strip_prefix("wait:") {
            let waiting = value.parse().unwrap_or(0);
            record.waiting.insert(name.to_owned(), waiting);
        } else if let Some(field) = field.strip_prefix("about:") {
            record.about.insert(field.to_owned(), value.clone());
        }
    }
    record
}

fn parse_lease(name: &str, value: &str, now_ms: u64) -> Option<LeaseRecord> {
    let mut parts = value.split(' ');
    let lease = LeaseId::new(parts.next()?);
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (fence, since_s, ttl_ms) = (number()?, number()?, number()?);
    Some(LeaseRecord {
        name: LockName::new(name).ok()?,
        lease,
        fence: Fence::new(fence),
        held_for: Duration::from_millis(now_ms.saturating_sub(since_s.saturating_mul(1_000))),
        ttl: Duration::from_millis(ttl_ms),
        kept: parts.next() == Some("kept"),
    })
}
