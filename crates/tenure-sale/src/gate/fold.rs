//! Several changes of an item made into one.

use std::collections::BTreeMap;

use super::spread::Place;
use crate::change::{Change, What};
use crate::error::{Error, ErrorKind, Result};
use crate::item::{ItemState, Terms};
use crate::stock::UNITS_MAX;

/// What changes mean for the gate, or for one shelf of it, together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fold<'a> {
    /// The number of the last of them.
    pub(super) to: u64,
    /// Units that come back.
    pub(super) units: u64,
    /// What buyers give back.
    pub(super) buyers: BTreeMap<&'a str, u64>,
    pub(super) state: Option<ItemState>,
    pub(super) terms: Option<&'a Terms>,
}

impl<'a> Fold<'a> {
    /// The changes that follow the number `after`.
    ///
    /// # Errors
    ///
    /// If one is missing between them: what it says would never reach the gate.
    pub(super) fn of(item: &str, place: Place, after: u64, changes: &'a [Change]) -> Result<Self> {
        let mut fold = Self {
            to: after,
            ..Self::default()
        };
        for change in changes {
            if change.number != fold.to + 1 {
                let message = format!(
                    "cannot tell the gate of change `{}` of `{item}`: it is at change {}",
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
            What::Released { buyer, .. } if !place.is_home_of(buyer) => {}
            What::Released { buyer, units, .. } => {
                self.units = self.units.saturating_add(*units);
                let given = self.buyers.entry(buyer).or_default();
                *given = given.saturating_add(*units);
            }
            What::Added { units, .. } | What::Returned { units, .. } => {
                let units = place.part_of_change(*units, change.number);
                self.units = self.units.saturating_add(units);
            }
            What::State(state) => self.state = Some(*state),
            What::Terms(terms) => self.terms = Some(terms),
            // The gate set these units aside itself, or none are concerned.
            What::Committed { .. } | What::Moved { .. } | What::Withdrawn { .. } => {}
        }
    }
}
