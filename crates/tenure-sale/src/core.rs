//! State shared by the parts of one sale.

use std::time::Duration;

use tenure::Tenure;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::consumer::commits::Commits;
use crate::contradictions::Contradictions;
use crate::error::{Error, ErrorKind, Result};
use crate::events::followers::Followers;
use crate::gate::Gate;
use crate::hub::Hub;
use crate::item::Item;
use crate::ledger::Ledger;
use crate::lost::watched::Watched;
use crate::pairing::Pairing;
use crate::rebuild::running::RunningRebuilds;
use crate::relay::turns::Relays;
use crate::stats::Counters;

#[derive(Debug)]
pub(crate) struct Core {
    /// Unique for this sale in this process.
    pub(crate) name: String,
    pub(crate) gate: Gate,
    pub(crate) ledger: Ledger,
    pub(crate) locks: Tenure,
    pub(crate) limits: Limits,
    pub(crate) pairing: Pairing,
    pub(crate) hub: Hub,
    pub(crate) counters: Counters,
    pub(crate) rebuilds: RunningRebuilds,
    pub(crate) relays: Relays,
    pub(crate) commits: Commits,
    pub(crate) contradictions: Contradictions,
    pub(crate) followers: Followers,
    pub(crate) watched: Watched,
    /// Wakes consumers of this process when an item is opened.
    pub(crate) opened: Notify,
    /// Cancelled when the last clone of the sale is dropped: ends the background tasks.
    pub(crate) gone: CancellationToken,
}

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For a call that waits for the ledger to commit an entry of the queue.
    pub(crate) confirm: Duration,
    /// For a buyer at a gate that must be rebuilt.
    pub(crate) rebuild: Duration,
}

impl Core {
    pub(crate) fn new(
        gate: Gate,
        ledger: Ledger,
        pairing: Pairing,
        locks: Tenure,
        limits: Limits,
    ) -> Self {
        let hub = if gate.is_memory() {
            Hub::that_remembers()
        } else {
            Hub::default()
        };
        Self {
            name: own_name(),
            gate,
            ledger,
            locks,
            limits,
            pairing,
            hub,
            counters: Counters::default(),
            rebuilds: RunningRebuilds::default(),
            relays: Relays::default(),
            commits: Commits::default(),
            contradictions: Contradictions::default(),
            followers: Followers::default(),
            watched: Watched::default(),
            opened: Notify::new(),
            gone: CancellationToken::new(),
        }
    }

    /// An item that must exist.
    pub(crate) async fn item(&self, name: &str) -> Result<Item> {
        let item = self.ledger.item(name).await?;
        item.ok_or_else(|| no_item(name))
    }
}

pub(crate) fn no_item(name: &str) -> Error {
    let message = format!("item `{name}` is not in the ledger: create it first");
    Error::new(ErrorKind::NoItem, message)
}

/// Two consumers with one name would take each other's entries.
fn own_name() -> String {
    let unique: u64 = rand::random();
    format!("{}-{unique:016x}", std::process::id())
}
