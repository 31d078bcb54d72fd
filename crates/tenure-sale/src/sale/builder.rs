//! The settings of a sale, before it is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure::Tenure;

use super::{Sale, Shared};
use crate::consumer::{Consumer, ConsumerOptions};
use crate::core::{Core, Limits};
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::item::ItemState;
use crate::ledger::Ledger;
use crate::pairing::{self, Pairing};
use crate::rebuild::{self, Need};

/// The settings of a [`Sale`], before it is opened.
#[derive(Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct SaleBuilder {
    gate_url: String,
    ledger_url: String,
    limits: Limits,
    own: ConsumerOptions,
}

impl SaleBuilder {
    pub(super) fn new(gate_url: &str, ledger_url: &str) -> Self {
        Self {
            gate_url: gate_url.trim().to_owned(),
            ledger_url: ledger_url.trim().to_owned(),
            limits: Limits {
                confirm: Duration::from_secs(5),
                rebuild: Duration::from_secs(2),
            },
            own: ConsumerOptions::default(),
        }
    }

    /// How long a call waits for the ledger to commit what it queued: 5 s by default. This applies
    /// to orders at a gate in memory, late payments, and withdrawals of stock. With a longer limit
    /// callers survive a ledger restart; with a shorter one they fail sooner.
    pub fn confirm_within(mut self, limit: Duration) -> Self {
        self.limits.confirm = limit;
        self
    }

    /// How long a buyer waits for a rebuild of the gate before the answer is
    /// [`StaleEpoch`](crate::Outcome::StaleEpoch): 2 s by default.
    pub fn rebuild_within(mut self, limit: Duration) -> Self {
        self.limits.rebuild = limit;
        self
    }

    /// The options of the sale's own consumer, with a gate in memory.
    pub fn own_consumer(mut self, options: ConsumerOptions) -> Self {
        self.own = options;
        self
    }

    /// Opens the sale.
    ///
    /// # Errors
    ///
    /// As for [`Sale::open`].
    pub async fn open(self) -> Result<Sale> {
        let gate = Gate::connect(&self.gate_url).await?;
        let locks = locks(&self.gate_url).await?;
        let gate = gate.with_locks(locks.clone());
        let ledger = Ledger::open(&self.ledger_url).await?;
        let is_memory = gate.is_memory();
        if is_memory {
            ledger.claim_alone().await?;
        }
        let pairing = Pairing::of(&gate, &ledger).await?;
        let core = Arc::new(Core::new(gate, ledger, pairing, locks, self.limits));
        tokio::spawn(pairing::keep::keep(Arc::clone(&core)));
        let own = if is_memory {
            load_all(&core).await?;
            Some(Consumer::start(Arc::clone(&core), self.own, None))
        } else {
            None
        };
        Ok(Sale {
            shared: Arc::new(Shared { core, _own: own }),
        })
    }
}

/// The locks for rebuilding gates are on the same servers as the gate.
async fn locks(gate_url: &str) -> Result<Tenure> {
    let connecting = Tenure::builder(gate_url).name("tenure-sale").connect();
    connecting
        .await
        .map_err(|error| Error::store("cannot connect to the gate for locks", error))
}

/// A gate in memory starts empty: it is loaded from the ledger.
async fn load_all(core: &Core) -> Result<()> {
    let states = [ItemState::Open, ItemState::Paused, ItemState::Closed];
    for item in core.ledger.items(&states).await? {
        rebuild::rebuild(core, &item.name, Need::Current).await?;
    }
    Ok(())
}

/// Without the passwords.
impl fmt::Debug for SaleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaleBuilder")
            .field("gate_url", &tenure::masked_url(&self.gate_url))
            .field("ledger_url", &tenure::masked_url(&self.ledger_url))
            .field("limits", &self.limits)
            .field("own", &self.own)
            .finish()
    }
}
