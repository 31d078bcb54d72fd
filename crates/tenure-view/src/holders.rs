//! Locks and their holders, in JSON for programs and in words for people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure::{ClientRecord, Holder, LeaseId, Listed, Locks, Mode, Slots};
use utoipa::ToSchema;

pub use crate::printable::printable;
use crate::time::{self, millis, moment};

/// The metadata entry that names the holder, for clients that hold locks for others.
pub const OWNER: &str = "owner";
const NOBODY: &str = "nobody";

/// A lock. Durations are in milliseconds, timestamps in RFC 3339.
#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LockReport {
    pub name: String,
    pub held: bool,
    /// Nobody uses it: its client keeps the lease for its next use, and lets it go if asked. Left
    /// out if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// How many leases share it. Left out if one holds it alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub readers: u64,
    /// The leases that share it: those that end last, at most a hundred. Only for a lock by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reader_leases: Vec<String>,
    /// How many permits the semaphore has. Left out for a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The slots that are in use, by lease: of at most a hundred leases.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<String, Vec<u32>>,
    /// The holder, in short.
    pub who: String,
    /// Needed to renew and release. The service shows it only where administration is allowed.
    pub lease_id: Option<String>,
    pub fence: Option<u64>,
    pub held_ms: Option<u64>,
    pub since: Option<String>,
    pub ttl_ms: Option<u64>,
    /// Null for a held lock without expiry, which may not be a lock.
    pub left_ms: Option<u64>,
    pub expires_at: Option<String>,
    #[serde(skip)]
    pub ends: Option<SystemTime>,
    #[serde(skip)]
    looked_at: Option<SystemTime>,
    /// The client, if its record is known.
    pub holder: Option<ClientReport>,
    /// Whether another library holds it.
    pub foreign: bool,
    pub meta: BTreeMap<String, String>,
    pub waiting: u64,
    pub waiters: Vec<WaiterReport>,
}

/// A client.
#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClientReport {
    pub client: String,
    pub host: String,
    pub pid: u32,
    pub name: Option<String>,
    pub about: BTreeMap<String, String>,
    pub version: String,
}

/// A client with waiters.
#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WaiterReport {
    #[serde(flatten)]
    pub client: ClientReport,
    pub waiting: u64,
    /// Their owners in order of arrival, as given to this service; at most a hundred. Left out if
    /// unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
}

impl LockReport {
    /// A listed lock.
    pub fn of_listed(listed: &Listed) -> Self {
        let mut report = Self::free(listed.name.as_str());
        report.waited_for(listed.waiters.iter().map(AsRef::as_ref));
        if let Some(lease) = &listed.lease {
            report.held_by(lease, listed.client.as_deref());
            report.fence = listed.fence.map(Into::into);
            report.meta.clone_from(&listed.meta);
            report.timed(listed.held_for, listed.ttl, listed.remaining);
            report.kept = listed.kept;
            report.readers = listed.readers;
            report.with_slots(&listed.slots);
            report.who = report.who();
        }
        report
    }

    /// A lock by name, with all client records.
    pub fn of_holder(name: &str, holder: Option<&Holder>, clients: &[ClientRecord]) -> Self {
        let mut report = Self::free(name);
        report.waited_for(clients.iter());
        if let Some(holder) = holder {
            let mut leases = clients.iter().flat_map(|client| &client.leases);
            let is_holder =
                |lease: &LeaseId| *lease == holder.lease || holder.reader_leases.contains(lease);
            let said = leases.find(|lease| is_holder(&lease.lease));
            report.held_by(&holder.lease, holder.client.as_ref());
            let fence = said.map(|lease| lease.fence).or(holder.fence);
            report.fence = fence.map(Into::into);
            report.meta.clone_from(&holder.meta);
            let held_for = said.map(|lease| lease.held_for);
            report.timed(held_for, said.map(|lease| lease.ttl), holder.remaining);
            report.kept = said.is_some_and(|lease| lease.kept);
            report.readers = holder.readers;
            report.with_slots(&holder.slots);
            let leases = holder.reader_leases.iter();
            report.reader_leases = leases.map(ToString::to_string).collect();
            report.who = report.who();
        }
        report
    }

    fn free(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            held: false,
            kept: false,
            readers: 0,
            reader_leases: Vec::new(),
            limit: None,
            slots: BTreeMap::new(),
            who: NOBODY.to_owned(),
            lease_id: None,
            fence: None,
            held_ms: None,
            since: None,
            ttl_ms: None,
            left_ms: None,
            expires_at: None,
            ends: None,
            looked_at: None,
            holder: None,
            foreign: false,
            meta: BTreeMap::new(),
            waiting: 0,
            waiters: Vec::new(),
        }
    }

    fn held_by(&mut self, lease: &LeaseId, client: Option<&ClientRecord>) {
        self.held = true;
        self.lease_id = Some(lease.to_string());
        let is_lock = lease.mode() == Mode::Exclusive && lease.latch().is_none();
        self.foreign = !lease.is_tenure() && is_lock;
        self.holder = client.map(ClientReport::of);
        self.limit = lease.semaphore_limit();
    }

    fn with_slots(&mut self, slots: &BTreeMap<LeaseId, Slots>) {
        let held = slots
            .iter()
            .map(|(lease, slots)| (lease.to_string(), slots.to_vec()));
        self.slots = held.collect();
    }

    fn timed(&mut self, held: Option<Duration>, ttl: Option<Duration>, left: Option<Duration>) {
        let now = SystemTime::now();
        self.looked_at = Some(now);
        self.held_ms = held.map(millis);
        self.since = held.and_then(|held| now.checked_sub(held)).map(moment);
        self.ttl_ms = ttl.map(millis);
        self.left_ms = left.map(millis);
        self.ends = left.and_then(|left| now.checked_add(left));
        self.expires_at = self.ends.map(moment);
    }

    fn waited_for<'a>(&mut self, clients: impl Iterator<Item = &'a ClientRecord>) {
        let waiter = |client: &ClientRecord| {
            let waiting = *client.waiting.get(&self.name)?;
            let client = ClientReport::of(client);
            Some(WaiterReport {
                client,
                waiting,
                owners: Vec::new(),
            })
        };
        self.waiters = clients.filter_map(waiter).collect();
        let place = |waiter: &WaiterReport| (waiter.client.host.clone(), waiter.client.pid);
        self.waiters.sort_by_key(place);
        let counts = self.waiters.iter().map(|waiter| waiter.waiting);
        self.waiting = counts.fold(0, u64::saturating_add);
    }

    /// The same, held by this client.
    #[must_use]
    pub fn by(mut self, holder: ClientReport) -> Self {
        self.holder = Some(holder);
        self.who = self.who();
        self
    }

    /// The clients that hold it or wait for it.
    pub fn clients(&self) -> impl Iterator<Item = &ClientReport> {
        let waiters = self.waiters.iter().map(|waiter| &waiter.client);
        self.holder.iter().chain(waiters)
    }

    /// Adds what an earlier poll found in client records.
    pub fn complete_by(&mut self, seen: &Self) {
        self.waiting = seen.waiting;
        self.waiters.clone_from(&seen.waiters);
        if self.lease_id.is_none() || self.lease_id != seen.lease_id {
            return;
        }
        let now = self.looked_at.unwrap_or_else(SystemTime::now);
        let seen = seen.clone().at(now);
        self.holder = seen.holder;
        self.fence = seen.fence.or(self.fence);
        self.held_ms = seen.held_ms;
        self.since = seen.since;
        self.ttl_ms = seen.ttl_ms;
        self.kept = seen.kept;
        self.who = self.who();
    }

    /// The same at a later time: durations advance.
    #[must_use]
    pub fn at(mut self, now: SystemTime) -> Self {
        let left = |ends: SystemTime| millis(ends.duration_since(now).unwrap_or_default());
        self.left_ms = self.ends.map(left);
        if let (Some(held_ms), Some(before)) = (self.held_ms, self.looked_at) {
            let passed = now.duration_since(before).unwrap_or_default();
            self.held_ms = Some(held_ms.saturating_add(millis(passed)));
            self.looked_at = Some(now);
        }
        self
    }

    /// Whether it is as the other but for the time that passed.
    pub fn is_as(&self, other: &Self) -> bool {
        let fixed = |lock: &Self| {
            (
                lock.held,
                lock.kept,
                lock.readers,
                lock.limit,
                lock.foreign,
                lock.fence,
                lock.ttl_ms,
                lock.waiting,
            )
        };
        fixed(self) == fixed(other)
            && self.lease_id == other.lease_id
            && self.since == other.since
            && self.expires_at == other.expires_at
            && self.who == other.who
            && self.holder == other.holder
            && self.meta == other.meta
            && self.waiters == other.waiters
            && self.slots == other.slots
    }

    /// The holder, in short.
    fn who(&self) -> String {
        let alone = self.who_alone();
        if let Some(limit) = self.limit {
            let slots: BTreeSet<u32> = self.slots.values().flatten().copied().collect();
            let more = if self.readers > self.slots.len() as u64 {
                " and more"
            } else {
                ""
            };
            return format!("slots {}{more} of {limit}, first {alone}", ranges(&slots));
        }
        match (self.readers, &self.holder) {
            (0, _) => alone,
            (1, Some(_)) => format!("{alone} (reader)"),
            (1, None) => "1 reader".to_owned(),
            (readers, Some(_)) => format!("{readers} readers, first {alone}"),
            (readers, None) => format!("{readers} readers"),
        }
    }

    /// The holder, or one of those who share the lock.
    fn who_alone(&self) -> String {
        let of_meta = |field: &str| self.meta.get(field).map(String::as_str);
        match (of_meta("host"), of_meta("pid"), &self.holder) {
            _ if !self.held => NOBODY.to_owned(),
            // The owner given over HTTP.
            _ if of_meta(OWNER).is_some() => printable(of_meta(OWNER).unwrap_or_default()),
            // Written by `tenure acquire` about its caller.
            (Some(host), Some(pid), _) => {
                let user = of_meta("user").map(|user| format!(" ({user})"));
                printable(&format!("{host}:{pid}{}", user.unwrap_or_default()))
            }
            (_, _, Some(client)) => client.who(),
            (Some(host), None, None) => printable(host),
            _ if self.latch().is_some() => self.latch().unwrap_or_default(),
            _ if self.foreign => "another library".to_owned(),
            _ => "unknown client".to_owned(),
        }
    }

    /// What it is if it is no lock but a latch.
    fn latch(&self) -> Option<String> {
        let lease = LeaseId::new(self.lease_id.as_deref()?);
        let (need, is_open) = lease.latch()?;
        let open = if is_open { "open" } else { "closed" };
        Some(format!("{open} latch of {need} parties"))
    }

    /// How long it has been held, if that is known.
    pub fn held_for(&self) -> Option<String> {
        self.held_ms.map(show_millis)
    }

    /// How long the lease lasts.
    pub fn left(&self) -> Option<String> {
        match self.left_ms {
            Some(left) => Some(show_millis(left)),
            None => self.held.then(|| "no expiry".to_owned()),
        }
    }

    /// Everything, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = |label: &str, text: String| lines.push(format!("  {label:<9} {text}"));
        if self.held {
            let label = if self.kept { "Kept by:" } else { "Holder:" };
            line(label, self.who.clone());
            line("Lease:", printable(self.lease_id.as_deref().unwrap_or("")));
        }
        for lease in &self.reader_leases {
            match self.slots.get(lease) {
                Some(slots) => {
                    let slots = ranges(&slots.iter().copied().collect());
                    line("Slots:", format!("{slots} {}", printable(lease)));
                }
                None => line("Reader:", printable(lease)),
            }
        }
        if let Some(fence) = self.fence {
            line("Fence:", fence.to_string());
        }
        if let (Some(held), Some(since)) = (self.held_for(), &self.since) {
            let label = if self.kept { "Kept:" } else { "Held:" };
            line(label, format!("{held}, since {since}"));
        }
        match (self.left(), self.ttl_ms) {
            (Some(left), Some(ttl)) if self.left_ms.is_some() => {
                let ttl = show_millis(ttl);
                line("Left:", format!("{left} of {ttl} unless renewed"));
            }
            (Some(left), _) if self.left_ms.is_some() => line("Left:", left),
            (Some(_), _) => line("Left:", "no expiry, so it may not be a lock".to_owned()),
            (None, _) => {}
        }
        let pairs = |pairs: &BTreeMap<String, String>| {
            let pairs = pairs
                .iter()
                .map(|(field, value)| format!("{field}={value}"));
            printable(&pairs.collect::<Vec<_>>().join(", "))
        };
        let about = self.holder.as_ref().map(|holder| &holder.about);
        if let Some(about) = about.filter(|about| !about.is_empty()) {
            line("About:", pairs(about));
        }
        if !self.meta.is_empty() {
            line("Meta:", pairs(&self.meta));
        }
        line("Waiting:", self.waiting.to_string());
        for waiter in &self.waiters {
            lines.push(format!("    {} at {}", waiter.waiting, waiter.client.who()));
        }
        lines
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ClientReport {
    /// The client's record.
    pub fn of(client: &ClientRecord) -> Self {
        Self {
            client: client.id.to_string(),
            host: client.host.clone(),
            pid: client.pid,
            name: client.name.clone(),
            about: client.about.clone(),
            version: client.version.clone(),
        }
    }

    /// As in `web-3:4121 (nightly, deploy, backup.sh)`.
    pub fn who(&self) -> String {
        let about = |field: &str| self.about.get(field).map(String::as_str);
        let more = [self.name.as_deref(), about("user"), about("command")];
        let more: Vec<&str> = more.into_iter().flatten().collect();
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(" ({})", more.join(", "))
        };
        printable(&format!("{}:{}{more}", self.host, self.pid))
    }
}

/// Reads everything about a lock.
pub async fn look(locks: &Locks, name: &str) -> Result<LockReport, tenure::Error> {
    let holder = locks.lock(name).holder().await?;
    let clients = locks.clients().await?;
    Ok(LockReport::of_holder(name, holder.as_ref(), &clients))
}

/// Numbers as people write them: `0-2, 5`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn show_millis(length: u64) -> String {
    time::show(Duration::from_millis(length))
}
