//! Dead letters as they are shown.

use std::fmt::{self, Display};

use serde::Serialize;
use tenure_sale::DeadLetter;
use tenure_sale::gate::Wanted;
use utoipa::ToSchema;

use crate::printable::printable;
use crate::time::moment;

/// A dead letter: an entry that the ledger rejected.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownLetter {
    order_id: String,
    /// `order`, `withdrawal`, `late_payment` or `unreadable`.
    kind: &'static str,
    buyer: Option<String>,
    request: Option<String>,
    units: u64,
    accepted_at: String,
    deliveries: u64,
    reason: String,
}

/// The result of a requeue or discard.
#[expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]
#[derive(Debug, Serialize, ToSchema)]
pub struct Decided {
    pub order_id: String,
    /// The state of the order, or `discarded`.
    pub state: &'static str,
}

impl ShownLetter {
    /// For output.
    pub fn of(letter: &DeadLetter) -> Self {
        let entry = &letter.entry;
        let (kind, buyer, request) = match &entry.what {
            Ok(Wanted::Order { buyer, request, .. }) => ("order", Some(buyer), Some(request)),
            Ok(Wanted::Withdrawal { reference, .. }) => ("withdrawal", None, Some(reference)),
            Ok(Wanted::Again { buyer, .. }) => ("late_payment", Some(buyer), None),
            Err(_) => ("unreadable", None, None),
        };
        Self {
            order_id: entry.id.to_string(),
            kind,
            buyer: buyer.cloned(),
            request: request.cloned(),
            units: entry.what.as_ref().map_or(0, Wanted::units),
            accepted_at: moment(entry.accepted_at),
            deliveries: entry.deliveries,
            reason: letter.reason.clone(),
        }
    }
}

impl ShownLetter {
    /// Above a table of dead letters.
    pub fn heading() -> String {
        format!(
            "{:<28} {:<12} {:>6}  {:<24}  {}  {}",
            "order", "kind", "units", "accepted", "buyer", "reason"
        )
    }
}

impl Display for ShownLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            order_id,
            kind,
            units,
            accepted_at,
            reason,
            ..
        } = self;
        let buyer = printable(self.buyer.as_deref().unwrap_or("-"));
        let reason = printable(reason);
        write!(
            f,
            "{order_id:<28} {kind:<12} {units:>6}  {accepted_at}  {buyer}  {reason}"
        )
    }
}
