//! Combines several changes of an item into one.

use std::collections::BTreeMap;

use super::spread::Place;
use crate::change::{Change, What};
use crate::error::{Error, ErrorKind, Result};
use crate::item::{ItemState, Terms};
use crate::stock::UNITS_MAX;

/// The combined effect of changes on the gate, or on one of its shelves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fold<'a> {
    /// The number of the last of them.
    pub(super) to: u64,
    /// Units that are returned.
    pub(super) units: u64,
    /// What buyers return.
    pub(super) buyers: BTreeMap<&'a str, u64>,
    pub(super) state: Option<ItemState>,
    pub(super) terms: Option<&'a Terms>,
}

impl<'a> Fold<'a> {
    /// The changes that follow the number `after`.
    ///
    /// # Errors
    ///
    /// If one of them is missing: its effect would never reach the gate.
    pub(super) fn of(item: &str, place: Place, after: u64, changes: &'a [Change]) -> Result<Self> {
        let mut fold = Self {
            to: after,
            ..Self::default()
        };
        for change in changes {
            if change.number != fold.to + 1 {
                let message = format!(
                    "cannot send change `{}` of `{item}` to the gate: it is at change {}",
                    change.number, fold.to
                );
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            fold.to = change.number;
            fold.add(change, place);
        }
        if fold.units > UNITS_MAX {
            let message = format!(
                "cannot add `{}` units to `{item}`: the most is {UNITS_MAX}",
                fold.units
            );
            return Err(Error::new(ErrorKind::InvalidUnits, message));
        }
        Ok(fold)
    }

    fn add(&mut self, change: &'a Change, place: Place) {
        match &change.what {
            What::Released { buyer, .. } | What::Refused { buyer, .. }
                if !place.is_home_of(buyer) => {}
            What::Released { buyer, units, .. } | What::Refused { buyer, units, .. } => {
                if matches!(change.what, What::Released { .. }) {
                    self.units = self.units.saturating_add(*units);
                }
                let given = self.buyers.entry(buyer).or_default();
                *given = given.saturating_add(*units);
            }
            What::Added { units, .. } | What::Returned { units, .. } => {
                let units = place.part_of_change(*units, change.number);
                self.units = self.units.saturating_add(units);
            }
            What::State(state) => self.state = Some(*state),
            What::Terms(terms) => self.terms = Some(terms),
            // The gate reserved these units itself, or no units are involved.
            What::Committed { .. } | What::Moved { .. } | What::Withdrawn { .. } => {}
        }
    }
}
