//! Orders as they are shown.

use std::fmt::{self, Display};

use serde::Serialize;
use tenure_sale::ledger::Count;
use tenure_sale::{Order, Outcome};
use utoipa::ToSchema;

use crate::printable::printable;
use crate::time::moment;

/// An order.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownOrder {
    order_id: String,
    item: String,
    buyer: String,
    request: String,
    units: u64,
    state: &'static str,
    accepted_at: String,
    pay_by: Option<String>,
    /// Why it was rejected, buried or lost.
    note: Option<String>,
}

/// Orders and units in one state.
#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownCount {
    pub state: &'static str,
    pub orders: u64,
    pub units: u64,
}

impl ShownOrder {
    /// For output.
    pub fn of(order: &Order) -> Self {
        Self {
            order_id: order.id.to_string(),
            item: order.id.item().to_owned(),
            buyer: order.buyer.clone(),
            request: order.request.clone(),
            units: order.units,
            state: order.state.word(),
            accepted_at: moment(order.accepted_at),
            pay_by: order.pay_by.map(moment),
            note: order.note.clone(),
        }
    }

    /// Above a table of orders.
    pub fn heading() -> String {
        format!(
            "{:<28} {:<16} {:>6}  {:<24}  {}",
            "order", "state", "units", "accepted", "buyer"
        )
    }
}

impl ShownCount {
    /// For output.
    pub fn of(count: &Count) -> Self {
        Self {
            state: count.state.word(),
            orders: count.orders,
            units: count.units,
        }
    }
}

impl Display for ShownOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            order_id,
            buyer,
            units,
            state,
            accepted_at,
            ..
        } = self;
        write!(
            f,
            "{order_id:<28} {state:<16} {units:>6}  {accepted_at}  {}",
            printable(buyer)
        )?;
        match &self.pay_by {
            Some(pay_by) if *state == "reserved" => write!(f, "  pay by {pay_by}")?,
            _ => {}
        }
        match &self.note {
            Some(note) => write!(f, "  ({})", printable(note)),
            None => Ok(()),
        }
    }
}

/// The word for what the gate decided.
pub fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted(_) => "accepted",
        Outcome::Replayed(_) => "replayed",
        Outcome::Conflict(_) => "conflict",
        Outcome::NoItem => "no_item",
        Outcome::NotStarted => "not_started",
        Outcome::Ended => "ended",
        Outcome::Paused => "paused",
        Outcome::LimitReached => "limit_reached",
        Outcome::SoldOut => "sold_out",
        Outcome::Busy => "busy",
        Outcome::StaleEpoch => "stale_epoch",
    }
}
