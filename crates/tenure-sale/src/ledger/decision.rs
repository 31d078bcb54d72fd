//! Decides on a batch of entries of one item, without a database.
//!
//! # Units
//!
//! At rest `total = left + queued + sold`: the units left at the gate, the units reserved by
//! entries in the queue, and the units sold in the ledger. Every decision removes an entry from the
//! queue, so its units go somewhere else:
//!
//! - *reserved* and *dead*: into `sold`.
//! - *paid* late: into `sold`, or back to the gate if the order no longer needs them.
//! - *cancelled* on request, *rejected* because of the buyer's limit or because its request already is an
//!   order: back to the gate, by a change.
//! - *rejected* because it does not fit into `total - sold`: nowhere, but they no longer count for the
//!   buyer. The gate had reserved more than there
//!   is (it lost sold units, and was not rebuilt), so `left + queued + sold` was greater than `total` by at
//!   least what does not fit. If these units were returned, they would only be sold in vain again. Only the
//!   units that no order could use are returned: if an order for three finds one free unit, only two were
//!   too many.
//! - *stale*: nowhere. The gate of that epoch is gone with its queue, and the new one was loaded with
//!   `total - sold`.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::change::What;
use crate::entry::{Entry, Wanted};
use crate::failpoint::bug;
use crate::item::Item;
use crate::ledger::fate::Fate;
use crate::ledger::lose::LOST;
use crate::names::{buyer_name, request_id};
use crate::order::{ORDER_UNITS_MAX, OrderId, OrderState};
use crate::stock::UNITS_MAX;

/// Epoch and number: an order of the current item.
pub(super) type Key = (u64, u64);

/// The longest reason of a withdrawal, in bytes.
pub(super) const REASON_BYTES_MAX: usize = 1024;

/// The ledger's data that is relevant to the batch.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) orders: HashMap<Key, KnownOrder>,
    /// Requests that already are an order, except for rejected and lost ones.
    pub(super) requests: HashSet<(String, String)>,
    pub(super) wishes: HashSet<Key>,
    /// Entries that are not orders and were settled before, and whether they were carried out.
    pub(super) settled: HashMap<Key, bool>,
    /// References of adjustments that were decided before.
    pub(super) references: HashSet<String>,
    /// What buyers have. Needed if there is a limit.
    pub(super) held: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(super) struct KnownOrder {
    pub(super) buyer: String,
    pub(super) request: String,
    pub(super) units: u64,
    pub(super) state: OrderState,
    pub(super) round: u64,
}

/// What to write.
#[derive(Debug, Default)]
pub(super) struct Decision<'a> {
    /// The fate of each entry, in order.
    pub(super) fates: Vec<Fate>,
    pub(super) rows: Vec<NewRow<'a>>,
    pub(super) agains: Vec<AgainRow<'a>>,
    pub(super) adjustments: Vec<AdjustmentRow<'a>>,
    pub(super) settled: Vec<SettledRow>,
    pub(super) wishes_met: Vec<Key>,
    pub(super) changes: Vec<What>,
}

/// A new order.
#[derive(Debug)]
pub(super) struct NewRow<'a> {
    pub(super) entry: &'a Entry,
    pub(super) buyer: &'a str,
    pub(super) request: &'a str,
    pub(super) units: u64,
    pub(super) state: OrderState,
    pub(super) note: Option<&'a str>,
}

/// A late payment: the order in its new state, with units again if it is *paid*.
#[derive(Debug)]
pub(super) struct AgainRow<'a> {
    pub(super) order: &'a OrderId,
    pub(super) from: OrderState,
    pub(super) to: OrderState,
    pub(super) units: u64,
    pub(super) round: u64,
}

/// A withdrawal.
#[derive(Debug)]
pub(super) struct AdjustmentRow<'a> {
    pub(super) reference: &'a str,
    pub(super) reason: &'a str,
    pub(super) units: u64,
    pub(super) done: bool,
}

/// An entry that is not an order and is done.
#[derive(Debug)]
pub(super) struct SettledRow {
    pub(super) key: Key,
    pub(super) kind: &'static str,
    pub(super) done: bool,
}

/// Decides on the entries of one item, in order. Afterwards `item` has its new counts.
///
/// Accepted orders get the state `landing`: reserved, or dead with the reason.
pub(super) fn decide<'a>(
    item: &mut Item,
    facts: Facts,
    entries: &[&'a Entry],
    landing: Landing<'a>,
) -> Decision<'a> {
    let mut desk = Desk {
        item,
        facts,
        landing,
        decision: Decision::default(),
        committed: BTreeMap::new(),
        given_back: 0,
        too_many: 0,
    };
    for entry in entries {
        let fate = desk.settle(entry);
        desk.decision.fates.push(fate);
    }
    desk.finish()
}

/// The state in which an order arrives in the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) enum Landing<'a> {
    Reserved,
    Dead(&'a str),
}

/// The working state of a decision.
struct Desk<'a, 'i> {
    item: &'i mut Item,
    facts: Facts,
    landing: Landing<'a>,
    decision: Decision<'a>,
    /// Orders that were added to the ledger, by state and epoch.
    committed: BTreeMap<(OrderState, u64), Vec<OrderId>>,
    /// Units that are returned to the gate.
    given_back: u64,
    /// Units of orders that did not fit.
    too_many: u64,
}

/// An order as in its entry.
struct Wish<'a> {
    entry: &'a Entry,
    buyer: &'a str,
    request: &'a str,
    units: u64,
}

impl<'a> Desk<'a, '_> {
    fn settle(&mut self, entry: &'a Entry) -> Fate {
        if i64::try_from(entry.id.epoch()).is_err() || i64::try_from(entry.id.number()).is_err() {
            return Fate::Refused("its number is too large for the ledger".into());
        }
        match &entry.what {
            Err(reason) => Fate::Refused(reason.clone()),
            Ok(Wanted::Order {
                buyer,
                request,
                units,
            }) => self.order(&Wish {
                entry,
                buyer,
                request,
                units: *units,
            }),
            Ok(Wanted::Withdrawal {
                reference,
                reason,
                units,
                expected,
            }) => self.withdrawal(entry, reference, reason, *units, *expected),
            Ok(Wanted::Again {
                order,
                buyer,
                units,
            }) => self.again(entry, order, buyer, *units),
        }
    }

    fn order(&mut self, wish: &Wish<'a>) -> Fate {
        if let Err(error) = buyer_name(wish.buyer).and_then(|_| request_id(wish.request)) {
            return Fate::Refused(error.to_string());
        }
        if !(1..=ORDER_UNITS_MAX).contains(&wish.units) {
            return Fate::Refused(format!("it is for `{}` units", wish.units));
        }
        if let Some(known) = self.facts.orders.get(&key(&wish.entry.id)) {
            return met_again(known, wish);
        }
        if let Some(fate) = self.of_another_epoch(wish.entry) {
            if fate == Fate::Stale {
                self.write(wish, OrderState::Lost, Some(LOST));
                self.announce(&wish.entry.id, OrderState::Lost);
            }
            return fate;
        }
        Fate::Settled(self.new_order(wish))
    }

    /// The fate of an entry that is not of the item's epoch.
    fn of_another_epoch(&self, entry: &Entry) -> Option<Fate> {
        match entry.id.epoch().cmp(&self.item.epoch) {
            std::cmp::Ordering::Less => Some(Fate::Stale),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Fate::Ahead),
        }
    }

    fn new_order(&mut self, wish: &Wish<'a>) -> OrderState {
        let key = key(&wish.entry.id);
        let unwanted = self.facts.wishes.contains(&key);
        if unwanted {
            self.decision.wishes_met.push(key);
        }
        let request = (wish.buyer.to_owned(), wish.request.to_owned());
        if self.facts.requests.contains(&request) {
            // The gate lost its answer, and gave another.
            return self.give_back(wish, OrderState::Rejected, "its request is another order");
        }
        if unwanted {
            // A cancelled order is still an order, and its request cannot become another one.
            self.facts.requests.insert(request);
            return self.give_back(wish, OrderState::Cancelled, "cancelled before it arrived");
        }
        if self.beyond_limit(wish.entry, wish.buyer, wish.units) {
            return self.give_back(wish, OrderState::Rejected, "beyond the buyer's limit");
        }
        if !self.fits(wish.units) {
            self.too_many += wish.units;
            self.write(wish, OrderState::Rejected, Some("sold out"));
            self.refuse(wish);
            return OrderState::Rejected;
        }
        self.facts.requests.insert(request);
        self.take(wish.buyer, wish.units);
        let (state, note) = match self.landing {
            Landing::Reserved => (OrderState::Reserved, None),
            Landing::Dead(reason) => (OrderState::Dead, Some(reason)),
        };
        self.write(wish, state, note);
        self.announce(&wish.entry.id, state);
        state
    }

    fn withdrawal(
        &mut self,
        entry: &'a Entry,
        reference: &'a str,
        reason: &'a str,
        units: u64,
        expected: Option<u64>,
    ) -> Fate {
        if !(1..=UNITS_MAX).contains(&units) {
            return Fate::Refused(format!("it withdraws `{units}` units"));
        }
        if let Err(error) = check_reference(reference).and_then(|()| check_reason(reason)) {
            return Fate::Refused(error);
        }
        if let Some(done) = self.facts.settled.get(&key(&entry.id)) {
            return Fate::Withdrawal(*done);
        }
        if let Some(fate) = self.of_another_epoch(entry) {
            return fate;
        }
        let new = self.facts.references.insert(reference.to_owned());
        let as_expected = expected.is_none_or(|expected| expected == self.item.total);
        let done = new && as_expected && !self.item.unlimited && self.fits(units);
        if new {
            self.decision.adjustments.push(AdjustmentRow {
                reference,
                reason,
                units,
                done,
            });
        }
        if done {
            self.item.total -= units;
        } else {
            self.given_back += units;
        }
        let reason = reason.to_owned();
        self.decision.changes.push(if done {
            What::Withdrawn { units, reason }
        } else {
            What::Returned { units, reason }
        });
        self.settled(entry, "withdrawal", done);
        Fate::Withdrawal(done)
    }

    fn again(&mut self, entry: &'a Entry, order: &'a OrderId, buyer: &'a str, units: u64) -> Fate {
        let known = self.facts.orders.get(&key(order)).cloned();
        let Some(known) = known.filter(|_| order.item() == self.item.name) else {
            return Fate::Refused(format!("item `{}` has no order `{order}`", self.item.name));
        };
        if known.buyer != buyer || known.units != units {
            return Fate::Refused(format!("it differs from order `{order}` in the ledger"));
        }
        if self.facts.settled.contains_key(&key(&entry.id)) {
            return Fate::Known(known.state);
        }
        if let Some(fate) = self.of_another_epoch(entry) {
            return fate;
        }
        if !matches!(known.state, OrderState::Expired | OrderState::Cancelled) {
            self.let_go(order, &known);
            self.settled(entry, "again", false);
            return Fate::Known(known.state);
        }
        let (within, fits) = (!self.beyond_limit(entry, buyer, units), self.fits(units));
        let paid = within && fits;
        let state = if paid {
            self.take(buyer, units);
            OrderState::Paid
        } else {
            OrderState::PaidUnfulfilled
        };
        let known = self.paid_late(order, &known, state);
        if !within {
            self.let_go(order, &known);
        } else if !fits {
            self.too_many += units;
            self.not_counted(order, state, buyer, units);
        }
        self.settled(entry, "again", paid);
        Fate::Settled(state)
    }

    /// Units that were reserved a second time, for nothing. The gate counts them for the buyer.
    fn let_go(&mut self, order: &OrderId, known: &KnownOrder) {
        self.given_back += known.units;
        self.decision.changes.push(What::Released {
            order: order.clone(),
            state: known.state,
            buyer: known.buyer.clone(),
            units: known.units,
        });
    }

    /// An order for units that do not exist.
    fn refuse(&mut self, wish: &Wish<'a>) {
        let (order, state) = (&wish.entry.id, OrderState::Rejected);
        if self.item.terms.limit_per_buyer.is_some() {
            self.not_counted(order, state, wish.buyer, wish.units);
        } else {
            self.announce(order, state);
        }
    }

    /// The gate reserved units for this buyer that do not exist: they do not count for the limit.
    fn not_counted(&mut self, order: &OrderId, state: OrderState, buyer: &str, units: u64) {
        self.decision.changes.push(What::Refused {
            order: order.clone(),
            state,
            buyer: buyer.to_owned(),
            units,
        });
    }

    fn paid_late(&mut self, order: &'a OrderId, known: &KnownOrder, to: OrderState) -> KnownOrder {
        let round = known.round + u64::from(to == OrderState::Paid);
        self.decision.agains.push(AgainRow {
            order,
            from: known.state,
            to,
            units: known.units,
            round,
        });
        self.decision.changes.push(What::Moved {
            order: order.clone(),
            state: to,
        });
        let known = KnownOrder {
            state: to,
            round,
            ..known.clone()
        };
        self.facts.orders.insert(key(order), known.clone());
        known
    }

    /// The units of an order that was not accepted are returned to the gate.
    fn give_back(&mut self, wish: &Wish<'a>, state: OrderState, note: &'static str) -> OrderState {
        self.write(wish, state, Some(note));
        self.given_back += wish.units;
        self.decision.changes.push(What::Released {
            order: wish.entry.id.clone(),
            state,
            buyer: wish.buyer.to_owned(),
            units: wish.units,
        });
        state
    }

    /// The order's row.
    fn write(&mut self, wish: &Wish<'a>, state: OrderState, note: Option<&'a str>) {
        self.decision.rows.push(NewRow {
            entry: wish.entry,
            buyer: wish.buyer,
            request: wish.request,
            units: wish.units,
            state,
            note,
        });
        let known = KnownOrder {
            buyer: wish.buyer.to_owned(),
            request: wish.request.to_owned(),
            units: wish.units,
            state,
            round: 1,
        };
        self.facts.orders.insert(key(&wish.entry.id), known);
    }

    /// Announces that an order is in the ledger. An order whose units are returned is announced by
    /// that change.
    fn announce(&mut self, id: &OrderId, state: OrderState) {
        let ids = self.committed.entry((state, id.epoch())).or_default();
        ids.push(id.clone());
    }

    fn settled(&mut self, entry: &Entry, kind: &'static str, done: bool) {
        let key = key(&entry.id);
        self.facts.settled.insert(key, done);
        self.decision.settled.push(SettledRow { key, kind, done });
    }

    /// An order keeps the limit under which it was accepted. A higher one of today counts as well:
    /// under it others may have been accepted later and committed earlier.
    fn beyond_limit(&self, entry: &Entry, buyer: &str, units: u64) -> bool {
        let Some(today) = self.item.terms.limit_per_buyer else {
            return false;
        };
        let limit = match entry.terms {
            Some(terms) if !bug("terms-of-today") => {
                terms.limit_per_buyer.map(|then| then.max(today))
            }
            _ => Some(today),
        };
        let has = self.facts.held.get(buyer).copied().unwrap_or_default();
        limit.is_some_and(|limit| has.saturating_add(units) > limit)
    }

    fn fits(&self, units: u64) -> bool {
        let most = if self.item.unlimited {
            UNITS_MAX
        } else {
            self.item.total
        };
        self.item.sold.saturating_add(units) <= most
    }

    fn take(&mut self, buyer: &str, units: u64) {
        self.item.sold += units;
        if self.item.terms.limit_per_buyer.is_some() {
            *self.facts.held.entry(buyer.to_owned()).or_default() += units;
        }
    }

    fn finish(mut self) -> Decision<'a> {
        let committed = self.committed.into_iter();
        let committed = committed.map(|((state, _), orders)| What::Committed { orders, state });
        let mut changes: Vec<What> = committed.collect();
        changes.append(&mut self.decision.changes);
        if self.too_many > 0 && !self.item.unlimited {
            let free = self.item.total - self.item.sold;
            let units = free.saturating_sub(self.given_back).min(self.too_many);
            if units > 0 {
                let reason = "too few for the order they were reserved for".to_owned();
                changes.push(What::Returned { units, reason });
            }
        }
        self.decision.changes = changes;
        self.decision
    }
}

/// Whether a text is a valid reference of an adjustment.
pub(super) fn check_reference(reference: &str) -> Result<(), String> {
    match request_id(reference) {
        Ok(_) => Ok(()),
        Err(_) => Err("a reference must be 1 to 128 bytes without control characters".into()),
    }
}

/// Whether a text is a valid reason of an adjustment.
pub(super) fn check_reason(reason: &str) -> Result<(), String> {
    if reason.len() > REASON_BYTES_MAX || reason.contains(char::is_control) {
        return Err(format!(
            "a reason must be at most {REASON_BYTES_MAX} bytes without control characters"
        ));
    }
    Ok(())
}

pub(super) fn key(id: &OrderId) -> Key {
    (id.epoch(), id.number())
}

/// An order that is already in the ledger arrives again.
fn met_again(known: &KnownOrder, wish: &Wish<'_>) -> Fate {
    let same = known.buyer == wish.buyer && known.request == wish.request;
    // It was reported as lost before it arrived, when its buyer was not known.
    let lost_unseen = known.state == OrderState::Lost && known.buyer.is_empty();
    if lost_unseen || (same && known.units == wish.units) {
        return Fate::Known(known.state);
    }
    Fate::Refused(format!(
        "the ledger has order `{}` with other content: {} units of `{}` for `{}`",
        wish.entry.id,
        known.units,
        known.request.escape_debug(),
        known.buyer.escape_debug()
    ))
}
