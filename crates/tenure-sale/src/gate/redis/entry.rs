//! The encoding of entries in the streams: fields and values.

use std::time::Duration;

use tenure::redis::Value;

use super::shelves::Shelf;
use crate::entry::{AcceptedTerms, Entry, Wanted};
use crate::gate::clock::time_of;
use crate::order::OrderId;
use crate::stock::UNITS_MAX;

/// The fields before those of the entry itself in a dead letter.
const DEAD_FIELDS: usize = 3;

/// The fields and values of an entry, without the time, which the server adds.
pub(super) fn fields(wanted: &Wanted) -> Vec<String> {
    let mut fields = Vec::new();
    let mut push = |field: &str, value: String| fields.extend([field.to_owned(), value]);
    match wanted {
        Wanted::Order {
            buyer,
            request,
            units,
        } => {
            push("buyer", buyer.clone());
            push("request", request.clone());
            push("units", units.to_string());
        }
        Wanted::Withdrawal {
            reference,
            reason,
            units,
            expected,
        } => {
            push("withdrawal", reference.clone());
            push("reason", reason.clone());
            push("units", units.to_string());
            if let Some(expected) = expected {
                push("expected", expected.to_string());
            }
        }
        Wanted::Again {
            order,
            buyer,
            units,
        } => {
            push("again", order.to_string());
            push("buyer", buyer.clone());
            push("units", units.to_string());
        }
    }
    fields
}

/// An entry of the queue. A malformed one is kept with the reason, so that it can be buried; `None`
/// only if the server returned nothing that could be an id.
pub(super) fn entry(shelf: &Shelf, id: &Value, fields: &Value, deliveries: u64) -> Option<Entry> {
    let id = shelf.order_of(id.as_str()?)?;
    Some(read(id, fields.as_array().unwrap_or_default(), deliveries))
}

/// A dead letter, with the reason.
pub(super) fn dead_entry(shelf: &Shelf, fields: &Value) -> Option<(Entry, String)> {
    let fields = fields.as_array()?;
    let (head, fields) = fields.split_at_checked(2 * DEAD_FIELDS)?;
    let id = shelf.order_of(head[1].as_str()?)?;
    let reason = head[3].as_str()?.to_owned();
    let deliveries = u64::try_from(head[5].as_int()?).ok()?;
    Some((read(id, fields, deliveries), reason))
}

fn read(id: OrderId, fields: &[Value], deliveries: u64) -> Entry {
    let fields = Fields(fields);
    let (accepted_at, terms) = (fields.number("at"), fields.terms());
    let what = accepted_at.clone().and_then(|_| fields.wanted());
    Entry {
        id,
        what: terms.clone().and(what),
        accepted_at: time_of(accepted_at.unwrap_or_default()),
        terms: terms.unwrap_or_default(),
        deliveries,
    }
}

struct Fields<'a>(&'a [Value]);

impl Fields<'_> {
    fn wanted(&self) -> Result<Wanted, String> {
        let units = self.number("units")?;
        if units == 0 {
            return Err("it is for no units".to_owned());
        }
        if self.get("request").is_some() {
            return Ok(Wanted::Order {
                buyer: self.text("buyer")?,
                request: self.text("request")?,
                units,
            });
        }
        if self.get("again").is_some() {
            let order = self.text("again")?;
            return Ok(Wanted::Again {
                order: order.parse().map_err(|_| unreadable("again"))?,
                buyer: self.text("buyer")?,
                units,
            });
        }
        let expected = self.get("expected").map(|_| self.number("expected"));
        Ok(Wanted::Withdrawal {
            reference: self.text("withdrawal")?,
            reason: self.text("reason")?,
            units,
            expected: expected.transpose()?,
        })
    }

    /// The limit and the milliseconds to pay, each empty if there is none: `3/900000`.
    fn terms(&self) -> Result<Option<AcceptedTerms>, String> {
        if self.get("terms").is_none() {
            return Ok(None);
        }
        let text = self.text("terms")?;
        let wrong = || unreadable("terms");
        let (limit, pay_within) = text.split_once('/').ok_or_else(wrong)?;
        let number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse::<u64>().map(Some).map_err(|_| wrong()),
        };
        Ok(Some(AcceptedTerms {
            limit_per_buyer: number(limit)?,
            pay_within: number(pay_within)?.map(Duration::from_millis),
        }))
    }

    fn get(&self, field: &str) -> Option<&Value> {
        let mut pairs = self.0.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0].as_str() == Some(field));
        pair.map(|pair| &pair[1])
    }

    fn text(&self, field: &str) -> Result<String, String> {
        let value = self.get(field).ok_or_else(|| missing(field))?;
        let text = value.as_str().ok_or_else(|| unreadable(field))?;
        Ok(text.to_owned())
    }

    fn number(&self, field: &str) -> Result<u64, String> {
        let number = self.text(field)?.parse().map_err(|_| unreadable(field))?;
        if number > UNITS_MAX {
            return Err(unreadable(field));
        }
        Ok(number)
    }
}

fn missing(field: &str) -> String {
    format!("it has no field `{field}`")
}

fn unreadable(field: &str) -> String {
    format!("its field `{field}` cannot be read")
}
