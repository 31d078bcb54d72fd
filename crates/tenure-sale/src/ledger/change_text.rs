//! Changes as text: a word for the kind, and JSON for the rest.

use serde_json::{Value, json};

use crate::change::What;
use crate::item::{ItemState, Terms};
use crate::ledger::moments::{duration, length, milliseconds, moment};
use crate::order::{OrderId, OrderState};

/// The word for its kind.
pub(super) fn kind(what: &What) -> &'static str {
    match what {
        What::Committed { .. } => "committed",
        What::Moved { .. } => "moved",
        What::Released { .. } => "released",
        What::Added { .. } => "added",
        What::Withdrawn { .. } => "withdrawn",
        What::Returned { .. } => "returned",
        What::State(_) => "state",
        What::Terms(_) => "terms",
    }
}

/// The rest of it, without the item, which stands beside it.
pub(super) fn payload(what: &What) -> String {
    let value = match what {
        What::Committed { orders, state } => json!({"state": state.word(), "runs": runs(orders)}),
        What::Moved { order, state } => {
            json!({"order": [order.epoch(), order.number()], "state": state.word()})
        }
        What::Released {
            order,
            state,
            buyer,
            units,
        } => json!({
            "order": [order.epoch(), order.number()],
            "state": state.word(),
            "buyer": buyer,
            "units": units,
        }),
        What::Added { units, reason }
        | What::Withdrawn { units, reason }
        | What::Returned { units, reason } => json!({"units": units, "reason": reason}),
        What::State(state) => json!({"state": state.word()}),
        What::Terms(terms) => terms_value(terms),
    };
    value.to_string()
}

/// Reads it again; `None` if it is not one of ours.
pub(super) fn what(item: &str, kind: &str, payload: &str) -> Option<What> {
    let value: Value = serde_json::from_str(payload).ok()?;
    let state = || OrderState::of_word(value["state"].as_str()?);
    let order = || {
        let (epoch, number) = (&value["order"][0], &value["order"][1]);
        Some(OrderId::new(item, epoch.as_u64()?, number.as_u64()?))
    };
    let text = |name: &str| Some(value[name].as_str()?.to_owned());
    let units = || value["units"].as_u64();
    Some(match kind {
        "committed" => What::Committed {
            orders: orders_of(item, &value["runs"])?,
            state: state()?,
        },
        "moved" => What::Moved {
            order: order()?,
            state: state()?,
        },
        "released" => What::Released {
            order: order()?,
            state: state()?,
            buyer: text("buyer")?,
            units: units()?,
        },
        "added" => What::Added {
            units: units()?,
            reason: text("reason")?,
        },
        "withdrawn" => What::Withdrawn {
            units: units()?,
            reason: text("reason")?,
        },
        "returned" => What::Returned {
            units: units()?,
            reason: text("reason")?,
        },
        "state" => What::State(ItemState::of_word(value["state"].as_str()?)?),
        "terms" => What::Terms(Box::new(terms_of(&value)?)),
        _ => return None,
    })
}

/// `[epoch, first, last]` for orders that follow each other: mostly a batch is one run.
fn runs(orders: &[OrderId]) -> Vec<[u64; 3]> {
    let mut runs: Vec<[u64; 3]> = Vec::new();
    for order in orders {
        match runs.last_mut() {
            Some([epoch, _, last]) if *epoch == order.epoch() && *last + 1 == order.number() => {
                *last = order.number();
            }
            _ => runs.push([order.epoch(), order.number(), order.number()]),
        }
    }
    runs
}

fn orders_of(item: &str, runs: &Value) -> Option<Vec<OrderId>> {
    let mut orders = Vec::new();
    for run in runs.as_array()? {
        let (epoch, first, last) = (run[0].as_u64()?, run[1].as_u64()?, run[2].as_u64()?);
        orders.extend((first..=last).map(|number| OrderId::new(item, epoch, number)));
    }
    Some(orders)
}

fn terms_value(terms: &Terms) -> Value {
    json!({
        "starts_at": terms.starts_at.map(milliseconds),
        "ends_at": terms.ends_at.map(milliseconds),
        "limit_per_buyer": terms.limit_per_buyer,
        "units_per_order": terms.units_per_order,
        "pay_within": terms.pay_within.map(length),
        "backlog_max": terms.backlog_max,
        "answers_kept": length(terms.answers_kept),
    })
}

fn terms_of(value: &Value) -> Option<Terms> {
    Some(Terms {
        starts_at: value["starts_at"].as_i64().map(moment),
        ends_at: value["ends_at"].as_i64().map(moment),
        limit_per_buyer: value["limit_per_buyer"].as_u64(),
        units_per_order: value["units_per_order"].as_u64()?,
        pay_within: value["pay_within"].as_i64().map(duration),
        backlog_max: value["backlog_max"].as_u64()?,
        answers_kept: duration(value["answers_kept"].as_i64()?),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn ids(numbers: &[(u64, u64)]) -> Vec<OrderId> {
        let id = |&(epoch, number)| OrderId::new("sku.7", epoch, number);
        numbers.iter().map(id).collect()
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        let order = OrderId::new("sku.7", 2, 3);
        let reason = "\"quoted\" and 換".to_owned();
        let terms = Terms {
            starts_at: Some(UNIX_EPOCH + Duration::from_millis(1)),
            limit_per_buyer: Some(3),
            pay_within: Some(Duration::from_millis(5)),
            ..Terms::default()
        };
        for written in [
            What::Committed {
                orders: ids(&[(1, 1), (1, 2), (1, 3), (1, 7), (2, 8)]),
                state: OrderState::Reserved,
            },
            What::Moved {
                order: order.clone(),
                state: OrderState::PaidUnfulfilled,
            },
            What::Released {
                order,
                state: OrderState::Expired,
                buyer: "bob".into(),
                units: 2,
            },
            What::Added {
                units: 1,
                reason: reason.clone(),
            },
            What::Withdrawn {
                units: 1,
                reason: reason.clone(),
            },
            What::Returned { units: 1, reason },
            What::State(ItemState::Paused),
            What::Terms(Box::new(terms)),
        ] {
            let read = what("sku.7", kind(&written), &payload(&written));
            assert_eq!(read, Some(written));
        }
    }

    #[test]
    fn what_a_newer_program_wrote_is_not_guessed_at() {
        assert_eq!(what("sku", "moved", "{}"), None);
        assert_eq!(what("sku", "moved", "no json"), None);
        assert_eq!(what("sku", "sung", "{\"units\": 1}"), None);
    }
}
