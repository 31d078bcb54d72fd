//! Validation of calls to a gate, and the errors of invalid ones.

use std::fmt;

use crate::entry::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::item::SPREAD_MAX;
use crate::names::request_id;
use crate::order::OrderId;
use crate::stock::UNITS_MAX;

/// The key under which a taken entry is remembered. No buyer's request has this prefix: those begin
/// with the buyer's name.
pub(super) fn reference(item: &str, wanted: &Wanted) -> Result<String> {
    if wanted.units() == 0 || wanted.units() > UNITS_MAX {
        let message = format!(
            "cannot take `{}` units of `{item}`: it must be 1 to {UNITS_MAX}",
            wanted.units()
        );
        return Err(Error::new(ErrorKind::InvalidUnits, message));
    }
    match wanted {
        Wanted::Order { .. } => {
            let message = format!(
                "cannot take units of `{item}` for a buyer's order: submit a request instead"
            );
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        Wanted::Withdrawal { reference, .. } => {
            Ok(format!("\nwithdrawal\n{}", request_id(reference)?))
        }
        Wanted::Again { order, .. } => {
            of_item(item, order)?;
            Ok(format!("\nagain\n{order}"))
        }
    }
}

pub(crate) fn check_spread(item: &str, spread: u64) -> Result<()> {
    if (1..=SPREAD_MAX).contains(&spread) {
        return Ok(());
    }
    let message =
        format!("cannot spread `{item}` over `{spread}` shelves: it must be 1 to {SPREAD_MAX}");
    Err(Error::new(ErrorKind::InvalidSetting, message))
}

pub(super) fn of_item(item: &str, order: &OrderId) -> Result<()> {
    if order.item() == item {
        return Ok(());
    }
    let message = format!("`{order}` is not an entry of `{item}`");
    Err(Error::new(ErrorKind::InvalidOrder, message))
}

pub(super) fn other_units(item: &str, reference: &str) -> Error {
    let message = format!(
        "cannot take units of `{item}`: `{}` was used for a different number of units",
        reference.trim().replace('\n', " ")
    );
    Error::new(ErrorKind::Conflict, message)
}

pub(super) fn foreign_id(item: &str, epoch: u64, id: impl fmt::Display) -> Error {
    let message = format!(
        "cannot load `{item}` under epoch {epoch}: its queue already had the id `{id}`, which is \
         not below. Was the ledger restored from an older copy, or the queue written to by others?"
    );
    Error::new(ErrorKind::Conflict, message)
}
