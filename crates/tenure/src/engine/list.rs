//! Lists locks and their holders: what the client records claim, checked against the store.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::client_record;
use crate::core::Core;
use crate::error::ErrorKind;
use crate::holder::{ClientRecord, LeaseRecord, Listed, Listing};
use crate::lease::{ClientId, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, InspectResult, LockState};

/// What the client records claim about one lock.
#[derive(Default)]
struct LockClaims<'a> {
    leases: Vec<&'a LeaseRecord>,
    waiters: Vec<Arc<ClientRecord>>,
}

/// Lists the locks that client records mention and the caller wants.
pub(crate) async fn list(
    core: &Core,
    wanted: impl Fn(&LockName) -> bool,
    limit: Moment,
) -> Result<Listing, Failure> {
    let records = client_record::read(core, None, limit).await?;
    let records: Vec<Arc<ClientRecord>> = records.into_iter().map(Arc::new).collect();
    let claims = claims_by_lock(&records, wanted);
    let names: Vec<LockName> = claims.keys().cloned().collect();
    let found = core.store.inspect_all(&names, limit).await?;
    let waited_for = claims
        .iter()
        .filter(|(_, claims)| !claims.waiters.is_empty());
    let waited_for = waited_for.map(|(name, _)| name.clone()).collect();
    let mut live = live_waiters(core, waited_for, limit).await?;
    let mut locks = Vec::with_capacity(claims.len());
    for ((name, mut claims), state) in claims.into_iter().zip(found) {
        let found = visible_state(state)?;
        if let Some(live) = live.remove(&name) {
            claims.keep_live_waiters(&live, found.as_ref());
        }
        if found.is_some() || !claims.waiters.is_empty() {
            locks.push(listed(name, &claims, found, &records));
        }
    }
    Ok(Listing {
        locks,
        more_leases: records
            .iter()
            .fold(0, |more, record| more.saturating_add(record.more_leases)),
    })
}

/// All client records, without dead waiters.
pub(crate) async fn clients(core: &Core, limit: Moment) -> Result<Vec<ClientRecord>, Failure> {
    let mut records = client_record::read(core, None, limit).await?;
    let waited_for = records.iter().flat_map(|record| record.waiting.keys());
    let waited_for: BTreeSet<&String> = waited_for.collect();
    let names = waited_for.into_iter();
    let names = names.filter_map(|name| LockName::new(name).ok()).collect();
    let live = live_waiters(core, names, limit).await?;
    for record in &mut records {
        let waits = |name: &str| {
            let live = LockName::new(name).ok().and_then(|name| live.get(&name));
            live.is_none_or(|live| live.contains(&record.id))
        };
        record.waiting.retain(|name, _| waits(name));
    }
    Ok(records)
}

/// The clients that really wait for each lock, according to its queue: a record outlives its client
/// by minutes. Locks that the store cannot tell this of are left out.
async fn live_waiters(
    core: &Core,
    names: Vec<LockName>,
    limit: Moment,
) -> Result<BTreeMap<LockName, HashSet<ClientId>>, Failure> {
    let waiters = core.store.waiters(&names, limit).await?;
    let clients = |waiters: Vec<LeaseId>| waiters.iter().filter_map(LeaseId::client).collect();
    let known = names.into_iter().zip(waiters);
    Ok(known
        .filter_map(|(name, waiters)| Some((name, clients(waiters?))))
        .collect())
}

impl LockClaims<'_> {
    /// Drops waiters that are not in the lock's queue. Waiters of the holding client queue up
    /// inside that process.
    fn keep_live_waiters(&mut self, live: &HashSet<ClientId>, found: Option<&LockState>) {
        let holder = found.and_then(|found| found.id.client());
        self.waiters
            .retain(|client| live.contains(&client.id) || holder == Some(client.id));
    }
}

/// Groups the claims of all records by lock.
fn claims_by_lock(
    records: &[Arc<ClientRecord>],
    wanted: impl Fn(&LockName) -> bool,
) -> BTreeMap<LockName, LockClaims<'_>> {
    let mut claims: BTreeMap<LockName, LockClaims<'_>> = BTreeMap::new();
    for record in records {
        for lease in record.leases.iter().filter(|lease| wanted(&lease.name)) {
            let of_lock = claims.entry(lease.name.clone()).or_default();
            of_lock.leases.push(lease);
        }
        let waited_for = record.waiting.keys();
        let waited_for = waited_for.filter_map(|name| LockName::new(name).ok());
        for name in waited_for.filter(|name| wanted(name)) {
            claims
                .entry(name)
                .or_default()
                .waiters
                .push(Arc::clone(record));
        }
    }
    claims
}

/// The state to list. A key that is not a lock, or that this user may not read, is not listed.
fn visible_state(state: InspectResult) -> InspectResult {
    let is_unseen = |kind| matches!(kind, ErrorKind::NotALock | ErrorKind::Denied);
    match state {
        Err(failure) if is_unseen(failure.error.kind()) => Ok(None),
        state => state,
    }
}

fn listed(
    name: LockName,
    claims: &LockClaims<'_>,
    found: Option<LockState>,
    records: &[Arc<ClientRecord>],
) -> Listed {
    let mut listed = Listed {
        name,
        lease: None,
        fence: None,
        held_for: None,
        ttl: None,
        remaining: None,
        kept: false,
        meta: BTreeMap::new(),
        client: None,
        readers: 0,
        slots: BTreeMap::new(),
        waiters: claims.waiters.clone(),
    };
    let Some(found) = found else { return listed };
    // Several records may list a detached lease. The one that has known it longest is right.
    // Of readers, the one that has held the lock longest is shown.
    let is_holder = |lease: &&&LeaseRecord| {
        lease.lease == found.id || found.readers.shown.contains(&lease.lease)
    };
    let record = claims.leases.iter().filter(is_holder);
    let record = record.max_by_key(|lease| lease.held_for);
    let shown = record.map_or(&found.id, |record| &record.lease);
    listed.fence = record.map(|record| record.fence).or(found.fence);
    listed.held_for = record.map(|record| record.held_for);
    listed.ttl = record.map(|record| record.ttl).or_else(|| found.id.ttl());
    listed.remaining = found.remaining;
    listed.kept = record.is_some_and(|record| record.kept);
    listed.meta = found.meta;
    listed.client = client_of(shown, records);
    listed.readers = found.readers.count;
    listed.slots = found.readers.slots;
    listed.lease = Some(found.id);
    listed
}

fn client_of(lease: &LeaseId, records: &[Arc<ClientRecord>]) -> Option<Arc<ClientRecord>> {
    let client: ClientId = lease.client()?;
    let record = records.iter().find(|record| record.id == client);
    record.map(Arc::clone)
}
