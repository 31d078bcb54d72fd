//! An in-memory ledger that behaves like a table with its indices.

use tenure_testkit::sale::{Movement, Order, Posting, State};

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) orders: Vec<Order>,
    pub(super) journal: Vec<Posting>,
}

impl Ledger {
    /// Inserts an order as reserved; only once if the key is unique.
    pub(super) fn insert(&mut self, order: Order, unique: bool) {
        if unique && self.position(&order.id).is_some() {
            return;
        }
        self.post(Movement::Reserved {
            order: order.id.clone(),
            buyer: order.buyer.clone(),
            units: order.units,
        });
        self.orders.push(order);
    }

    pub(super) fn state(&self, id: &str) -> State {
        let at = self.position(id);
        at.map_or(State::Queued, |at| self.orders[at].state)
    }

    /// Moves an order from reserved to another state, or `blindly` from any state. Returns the order if it
    /// was changed.
    pub(super) fn change(&mut self, id: &str, to: State, blindly: bool) -> Option<Order> {
        let at = self.position(id)?;
        if !blindly && self.orders[at].state != State::Reserved {
            return None;
        }
        self.orders[at].state = to;
        let order = self.orders[at].clone();
        if to == State::Cancelled {
            self.post(Movement::Released {
                order: order.id.clone(),
                buyer: order.buyer.clone(),
                units: order.units,
            });
        }
        Some(order)
    }

    pub(super) fn held_by(&self, buyer: &str) -> u64 {
        let of_buyer = self.orders.iter().filter(|order| order.buyer == buyer);
        let held = of_buyer.filter(|order| order.state.holds_units());
        held.map(|order| order.units).sum()
    }

    pub(super) fn sold(&self) -> u64 {
        let held = self.orders.iter().filter(|it| it.state.holds_units());
        held.map(|order| order.units).sum()
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.orders.iter().position(|order| order.id == id)
    }

    fn post(&mut self, movement: Movement) {
        self.journal.push(Posting {
            item: super::ITEM.into(),
            movement,
        });
    }
}
