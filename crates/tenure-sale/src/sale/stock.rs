//! Raising and lowering the stock of an item.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::Sale;
use crate::entry::{Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Taken;
use crate::item::{Item, ItemState};
use crate::ledger::Fate;
use crate::order::OrderId;
use crate::relay;

/// Between checks whether the ledger has committed a withdrawal.
const PAUSE: Duration = Duration::from_millis(20);

impl Sale {
    /// Changes the stock of an item by this many units, with a reason, once per `reference`: if it
    /// is uncertain whether a change was made, repeat it with the same reference.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict) if fewer units are left than are to be withdrawn;
    /// [`Ledger`](ErrorKind::Ledger) if the result is not known in time: repeat it with the same
    /// reference.
    pub async fn adjust(
        &self,
        item: &str,
        delta: i64,
        reason: &str,
        reference: &str,
    ) -> Result<Item> {
        let edit = Edit {
            reason,
            reference,
            expected: None,
        };
        self.edit(item, delta, edit).await
    }

    /// Sets the stock of an item, including sold units, to this total; with `expected`, only if
    /// that is the current total.
    ///
    /// # Errors
    ///
    /// As for [`adjust`](Sale::adjust), and [`Conflict`](ErrorKind::Conflict) if the stock was
    /// changed meanwhile.
    pub async fn set_stock(&self, item: &str, total: u64, expected: Option<u64>) -> Result<Item> {
        let known = self.core().item(item).await?;
        if let Some(expected) = expected.filter(|expected| *expected != known.total) {
            let message = format!(
                "cannot set the stock of `{item}`: it is {}, not {expected}; check again",
                known.total
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let too_many = || {
            let message = format!("cannot set the stock of `{item}` to `{total}`: too many units");
            Error::new(ErrorKind::InvalidUnits, message)
        };
        let delta = i128::from(total) - i128::from(known.total);
        let delta = i64::try_from(delta).map_err(|_| too_many())?;
        let reference = format!("set-{:032x}", rand::random::<u128>());
        let edit = Edit {
            reason: "stock set",
            reference: &reference,
            expected: Some(known.total),
        };
        self.edit(item, delta, edit).await
    }

    async fn edit(&self, item: &str, delta: i64, edit: Edit<'_>) -> Result<Item> {
        let core = self.core();
        let known = core.item(item).await?;
        if known.unlimited {
            let message = format!("cannot change the stock of `{item}`: it is unlimited");
            return Err(Error::new(ErrorKind::InvalidSetting, message));
        }
        let units = delta.unsigned_abs();
        if delta < 0 {
            self.lower(&known, units, edit).await?;
        } else if delta > 0 {
            let (reason, reference) = (edit.reason, edit.reference);
            core.ledger
                .add_units(item, units, reason, reference, edit.expected)
                .await?;
            if known.state != ItemState::Draft {
                relay::relay_if_possible(core, item).await;
            }
        }
        core.item(item).await
    }

    /// The gate reserves the units first, so that they cannot be sold meanwhile.
    async fn lower(&self, item: &Item, units: u64, edit: Edit<'_>) -> Result<()> {
        let name = &item.name;
        let wanted = edit.withdrawal(units);
        if item.state == ItemState::Draft {
            return self.lower_draft(item, wanted).await;
        }
        match self.set_aside(name, &wanted).await? {
            Taken::Queued(_) | Taken::Replayed(_) => {}
            Taken::SoldOut { left } => {
                let message = format!(
                    "cannot take `{units}` units of `{name}` out of the stock: {left} are left"
                );
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            // A withdrawal has no buyer.
            Taken::LimitReached | Taken::Busy | Taken::NoItem | Taken::StaleEpoch => {
                let message = format!(
                    "cannot lower the stock of `{name}` now: its gate is busy or must be rebuilt; \
                     try again with the same reference"
                );
                return Err(Error::new(ErrorKind::Stale, message));
            }
        }
        self.withdrawn(name, edit.reference).await
    }

    /// Waits until the ledger has decided on a queued withdrawal.
    async fn withdrawn(&self, item: &str, reference: &str) -> Result<()> {
        let core = self.core();
        let end = Instant::now() + core.limits.confirm;
        loop {
            match core.ledger.withdrawal(item, reference).await? {
                Some(true) => return Ok(()),
                Some(false) => {
                    relay::relay_if_possible(core, item).await;
                    return Err(not_lowered(item));
                }
                None if Instant::now() >= end => {
                    let message = format!(
                        "the ledger did not lower the stock of `{item}` within {:?}; the units are \
                         reserved: try again with the reference `{reference}`",
                        core.limits.confirm
                    );
                    return Err(Error::new(ErrorKind::Ledger, message));
                }
                None => sleep(PAUSE).await,
            }
        }
    }

    /// A draft is not at the gate: the ledger alone decides. If it is opened meanwhile the ledger
    /// refuses, because the entry then has no epoch.
    async fn lower_draft(&self, item: &Item, wanted: Wanted) -> Result<()> {
        let entry = Entry {
            id: OrderId::new(&item.name, item.epoch, rand::random::<u64>() >> 1),
            what: Ok(wanted),
            accepted_at: SystemTime::now(),
            terms: None,
            deliveries: 1,
        };
        let fates = self.core().ledger.commit(&[entry]).await?;
        match fates.first() {
            Some(Fate::Withdrawal(true)) => Ok(()),
            _ => Err(not_lowered(&item.name)),
        }
    }
}

/// The record of a change of the stock.
#[derive(Clone, Copy)]
struct Edit<'a> {
    reason: &'a str,
    reference: &'a str,
    expected: Option<u64>,
}

impl Edit<'_> {
    fn withdrawal(&self, units: u64) -> Wanted {
        Wanted::Withdrawal {
            reference: self.reference.to_owned(),
            reason: self.reason.to_owned(),
            units,
            expected: self.expected,
        }
    }
}

fn not_lowered(item: &str) -> Error {
    let message = format!(
        "the stock of `{item}` was not lowered: it was changed meanwhile, or too much is sold; look \
         again"
    );
    Error::new(ErrorKind::Conflict, message)
}
