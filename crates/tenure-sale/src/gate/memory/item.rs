//! One item at the gate: pure functions, with the time as an argument.

use std::collections::HashMap;

use tenure::Fence;

use super::queue::Queue;
use super::refused;
use crate::entry::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::checks::other_units;
use crate::gate::clock::{micros, millis};
use crate::gate::fold::Fold;
use crate::gate::load::{Ended, Load, Remembered};
use crate::gate::outcome::{Applied, Taken};
use crate::item::{ItemState, Terms};
use crate::order::{Answer, OrderId, Outcome, Request};
use crate::stock::UNITS_MAX;

#[derive(Debug)]
pub(super) struct ItemGate {
    pub(super) epoch: u64,
    pub(super) fence: Fence,
    /// `None` while it is being loaded.
    pub(super) loaded: Option<Loaded>,
    /// The epoch before.
    pub(super) ended: Option<Ended>,
    /// What each buyer has, if there is a limit.
    buyers: HashMap<String, u64>,
    /// The accepted orders and their units, by the key under which they are remembered.
    answers: HashMap<String, (OrderId, u64)>,
}

#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) state: ItemState,
    /// `None` if unlimited.
    pub(super) left: Option<u64>,
    pub(super) change: u64,
    terms: Terms,
    /// When buyers and answers are dropped, once the item is closed.
    forgets: Option<u64>,
    /// When there is next something to drop.
    clears: Option<u64>,
}

impl ItemGate {
    pub(super) fn loading(epoch: u64, fence: Fence, ended: Option<Ended>) -> Self {
        Self {
            epoch,
            fence,
            loaded: None,
            ended,
            buyers: HashMap::new(),
            answers: HashMap::new(),
        }
    }

    /// What ends with this epoch, given the last id of the queue.
    pub(super) fn ended_with(&self, last: Option<(u64, u64)>) -> Option<Ended> {
        if self.loaded.is_none() {
            return self.ended;
        }
        let of_this = last.filter(|(epoch, _)| *epoch == self.epoch);
        Some(Ended {
            shelf: 0,
            epoch: self.epoch,
            entries: of_this.map_or(0, |(_, number)| number + 1),
        })
    }

    pub(super) fn load_buyers(&mut self, buyers: &[(String, u64)], answers: &[Remembered]) {
        self.buyers.extend(buyers.iter().cloned());
        for known in answers {
            let remembered = format!("{}\n{}", known.buyer, known.request);
            let answer = (known.order.clone(), known.units);
            self.answers.insert(remembered, answer);
        }
    }

    pub(super) fn finish_load(&mut self, load: &Load, now: u64) {
        if load.terms.limit_per_buyer.is_none() {
            self.buyers.clear();
        }
        let mut loaded = Loaded {
            state: load.state,
            left: load.left,
            change: load.change,
            terms: load.terms.clone(),
            forgets: None,
            clears: None,
        };
        loaded.set_state(load.state, now);
        self.loaded = Some(loaded);
    }

    pub(super) fn is_closed(&self) -> bool {
        let loaded = self.loaded.as_ref();
        loaded.is_some_and(|loaded| loaded.state == ItemState::Closed)
    }

    pub(super) fn ask(&mut self, request: &Request, queue: &mut Queue, now: u64) -> Answer {
        self.forget_what_is_over(now);
        let Some(loaded) = &mut self.loaded else {
            return refused(Outcome::StaleEpoch);
        };
        let name = format!("{}\n{}", request.buyer(), request.id());
        let units = request.wanted();
        let outcome = if let Some((order, before)) = self.answers.get(&name) {
            if *before == units {
                Outcome::Replayed(order.clone())
            } else {
                Outcome::Conflict(order.clone())
            }
        } else if let Some(refusal) = loaded.refusal(request, &self.buyers, queue.len(), now) {
            refusal
        } else {
            let wanted = Wanted::Order {
                buyer: request.buyer().to_owned(),
                request: request.id().to_owned(),
                units,
            };
            let order = queue.push(request.item(), self.epoch, wanted, &loaded.terms, now);
            loaded.set_aside(units);
            if loaded.terms.limit_per_buyer.is_some() {
                *self.buyers.entry(request.buyer().to_owned()).or_default() += units;
            }
            self.answers.insert(name, (order.clone(), units));
            Outcome::Accepted(order)
        };
        Answer {
            outcome,
            left: loaded.left,
        }
    }

    pub(super) fn take(
        &mut self,
        item: &str,
        wanted: &Wanted,
        reference: String,
        queue: &mut Queue,
        now: u64,
    ) -> Result<Taken> {
        self.forget_what_is_over(now);
        let Some(loaded) = &mut self.loaded else {
            return Ok(Taken::StaleEpoch);
        };
        let units = wanted.units();
        if let Some((order, before)) = self.answers.get(&reference) {
            if *before != units {
                return Err(other_units(item, &reference));
            }
            return Ok(Taken::Replayed(order.clone()));
        }
        if let (Wanted::Again { buyer, .. }, Some(limit)) = (wanted, loaded.terms.limit_per_buyer) {
            let has = self.buyers.get(buyer).copied().unwrap_or_default();
            if has.saturating_add(units) > limit {
                return Ok(Taken::LimitReached);
            }
        }
        if queue.len() >= loaded.terms.backlog_max {
            return Ok(Taken::Busy);
        }
        if let Some(left) = loaded.left.filter(|left| *left < units) {
            return Ok(Taken::SoldOut { left });
        }
        let order = queue.push(item, self.epoch, wanted.clone(), &loaded.terms, now);
        loaded.set_aside(units);
        if let Wanted::Again { buyer, .. } = wanted
            && loaded.terms.limit_per_buyer.is_some()
        {
            *self.buyers.entry(buyer.clone()).or_default() += units;
        }
        self.answers.insert(reference, (order.clone(), units));
        if loaded.forgets.is_some() && loaded.clears.is_none() {
            loaded.clears = Some(now.saturating_add(loaded.kept()));
        }
        Ok(Taken::Queued(order))
    }

    pub(super) fn apply(
        &mut self,
        item: &str,
        after: u64,
        fold: &Fold<'_>,
        now: u64,
    ) -> Result<Applied> {
        let Some(loaded) = &mut self.loaded else {
            return Ok(Applied::Stale);
        };
        if loaded.change != after {
            return Ok(Applied::At(loaded.change));
        }
        if loaded.must_be_rebuilt(fold, now) {
            return Ok(Applied::Stale);
        }
        loaded.put_back(item, fold.units)?;
        loaded.change = fold.to;
        if loaded.terms.limit_per_buyer.is_some() {
            self.lower(fold);
        }
        self.settle(fold, now);
        self.forget_what_is_over(now);
        Ok(Applied::Done)
    }

    /// Lowers what buyers have.
    fn lower(&mut self, fold: &Fold<'_>) {
        for (buyer, units) in &fold.buyers {
            if let Some(has) = self.buyers.get_mut(*buyer) {
                *has = has.saturating_sub(*units);
            }
            self.buyers.retain(|name, has| *has > 0 || name != buyer);
        }
    }

    /// Applies new terms and a new state.
    fn settle(&mut self, fold: &Fold<'_>, now: u64) {
        let Some(loaded) = &mut self.loaded else {
            return;
        };
        if let Some(terms) = fold.terms {
            loaded.terms = terms.clone();
            if terms.limit_per_buyer.is_none() {
                self.buyers.clear();
            }
        }
        if let Some(state) = fold.state {
            loaded.set_state(state, now);
        }
    }

    fn forget_what_is_over(&mut self, now: u64) {
        if let Some(loaded) = &mut self.loaded
            && loaded.clears.is_some_and(|clears| now >= clears)
        {
            loaded.clears = None;
            self.buyers.clear();
            self.answers.clear();
        }
    }
}

impl Loaded {
    fn refusal(
        &self,
        request: &Request,
        buyers: &HashMap<String, u64>,
        queued: u64,
        now: u64,
    ) -> Option<Outcome> {
        let (units, terms) = (request.wanted(), &self.terms);
        let has = buyers.get(request.buyer()).copied().unwrap_or_default();
        let beyond = |limit: u64| has.saturating_add(units) > limit;
        let is_over = terms.ends_at.is_some_and(|end| now >= micros(end));
        let is_early = terms.starts_at.is_some_and(|start| now < micros(start));
        if self.state == ItemState::Closed || is_over {
            Some(Outcome::Ended)
        } else if self.state == ItemState::Draft || is_early {
            Some(Outcome::NotStarted)
        } else if self.state == ItemState::Paused {
            Some(Outcome::Paused)
        } else if units > terms.units_per_order || terms.limit_per_buyer.is_some_and(beyond) {
            Some(Outcome::LimitReached)
        } else if queued >= terms.backlog_max {
            Some(Outcome::Busy)
        } else if self.left.is_some_and(|left| left < units) {
            Some(Outcome::SoldOut)
        } else {
            None
        }
    }

    fn set_aside(&mut self, units: u64) {
        self.left = self.left.map(|left| left.saturating_sub(units));
    }

    fn put_back(&mut self, item: &str, units: u64) -> Result<()> {
        let Some(left) = self.left else {
            return Ok(());
        };
        let sum = left.saturating_add(units);
        if sum > UNITS_MAX {
            let message = format!("cannot keep `{sum}` units of `{item}`: the most is {UNITS_MAX}");
            return Err(Error::new(ErrorKind::InvalidUnits, message));
        }
        self.left = Some(sum);
        Ok(())
    }

    /// Whether the gate would need to know what buyers have, but does not.
    fn must_be_rebuilt(&self, fold: &Fold<'_>, now: u64) -> bool {
        let limit = |terms: &Terms| terms.limit_per_buyer.is_some();
        let is_limited_now = fold.terms.is_some_and(limit) && !limit(&self.terms);
        let reopens = fold.state.is_some_and(|state| state != ItemState::Closed);
        let has_forgotten = self.forgets.is_some_and(|forgets| now >= forgets);
        is_limited_now || (reopens && has_forgotten)
    }

    fn set_state(&mut self, state: ItemState, now: u64) {
        self.state = state;
        let forgets = now.saturating_add(self.kept());
        self.forgets = (state == ItemState::Closed).then_some(forgets);
        self.clears = self.forgets;
    }

    /// How long answers are kept, in microseconds.
    fn kept(&self) -> u64 {
        millis(self.terms.answers_kept).saturating_mul(1000)
    }
}
