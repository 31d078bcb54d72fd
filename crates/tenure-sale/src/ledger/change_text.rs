//! Changes as text: a word for the kind, and JSON for the rest.

use serde_json::{Value, json};

use crate::change::What;
use crate::item::{ItemState, Terms};
use crate::ledger::timestamps::{duration, duration_ms, milliseconds, moment};
use crate::order::{OrderId, OrderState};

/// The word for its kind.
pub(super) fn kind(what: &What) -> &'static str {
    match what {
        What::Committed { .. } => "committed",
        What::Moved { .. } => "moved",
        // One kind for both: versions that know only of the first can go on.
        What::Released { .. } | What::Refused { .. } => "released",
        What::Added { .. } => "added",
        What::Withdrawn { .. } => "withdrawn",
        What::Returned { .. } => "returned",
        What::State(_) => "state",
        What::Terms(_) => "terms",
    }
}

/// The rest of it, without the item, which has its own column and this many shelves.
pub(super) fn payload(what: &What, spread: u64) -> String {
    let value = match what {
        What::Committed { orders, state } => {
            json!({"state": state.word(), "runs": runs(orders, spread)})
        }
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
        What::Refused {
            order,
            state,
            buyer,
            units,
        } => json!({
            "order": [order.epoch(), order.number()],
            "state": state.word(),
            "buyer": buyer,
            "units": units,
            "in_vain": true,
        }),
        What::Added { units, reason }
        | What::Withdrawn { units, reason }
        | What::Returned { units, reason } => json!({"units": units, "reason": reason}),
        What::State(state) => json!({"state": state.word()}),
        What::Terms(terms) => terms_value(terms),
    };
    value.to_string()
}

/// Parses it; `None` if it is not one of ours.
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
        "released" if value["in_vain"] == Value::Bool(true) => What::Refused {
            order: order()?,
            state: state()?,
            buyer: text("buyer")?,
            units: units()?,
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

/// `[epoch, first, last]` for consecutive orders: usually a batch is one run. The numbers of one
/// shelf have the number of shelves as their step: `[epoch, first, last, step]`.
fn runs(orders: &[OrderId], spread: u64) -> Vec<Value> {
    let mut runs: Vec<Run> = Vec::new();
    for order in orders {
        if !runs.last_mut().is_some_and(|run| run.takes(order, spread)) {
            runs.push(Run {
                epoch: order.epoch(),
                first: order.number(),
                last: order.number(),
                step: None,
            });
        }
    }
    runs.iter().map(Run::value).collect()
}

struct Run {
    epoch: u64,
    first: u64,
    last: u64,
    /// The step, if there are two.
    step: Option<u64>,
}

impl Run {
    /// Adds an order if it is the next of this run; returns whether it was.
    fn takes(&mut self, order: &OrderId, spread: u64) -> bool {
        let step = order.number().checked_sub(self.last);
        let fits = match self.step {
            Some(_) => step == self.step,
            None => step == Some(1) || step == Some(spread),
        };
        if !fits || order.epoch() != self.epoch {
            return false;
        }
        (self.last, self.step) = (order.number(), step);
        true
    }

    fn value(&self) -> Value {
        let (epoch, first, last) = (self.epoch, self.first, self.last);
        match self.step {
            Some(step) if step != 1 => json!([epoch, first, last, step]),
            _ => json!([epoch, first, last]),
        }
    }
}

fn orders_of(item: &str, runs: &Value) -> Option<Vec<OrderId>> {
    let mut orders = Vec::new();
    for run in runs.as_array()? {
        let (epoch, first, last) = (run[0].as_u64()?, run[1].as_u64()?, run[2].as_u64()?);
        let step = match &run[3] {
            Value::Null => 1,
            step => usize::try_from(step.as_u64().filter(|step| *step > 0)?).ok()?,
        };
        let numbers = (first..=last).step_by(step);
        orders.extend(numbers.map(|number| OrderId::new(item, epoch, number)));
    }
    Some(orders)
}

fn terms_value(terms: &Terms) -> Value {
    json!({
        "starts_at": terms.starts_at.map(milliseconds),
        "ends_at": terms.ends_at.map(milliseconds),
        "limit_per_buyer": terms.limit_per_buyer,
        "units_per_order": terms.units_per_order,
        "pay_within": terms.pay_within.map(duration_ms),
        "backlog_max": terms.backlog_max,
        "answers_kept": duration_ms(terms.answers_kept),
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
                order: order.clone(),
                state: OrderState::Expired,
                buyer: "bob".into(),
                units: 2,
            },
            What::Refused {
                order,
                state: OrderState::Rejected,
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
            for spread in [1, 3] {
                let read = what("sku.7", kind(&written), &payload(&written, spread));
                assert_eq!(read.as_ref(), Some(&written));
            }
        }
    }

    /// The step of one shelf's numbers is the number of shelves.
    #[test]
    fn orders_of_one_shelf_are_one_run() {
        let runs = |numbers: &[(u64, u64)], spread| {
            let orders = ids(numbers);
            let runs = Value::from(runs(&orders, spread));
            assert_eq!(orders_of("sku.7", &runs), Some(orders));
            runs
        };
        let of_shelf = [(1, 4), (1, 7), (1, 10), (1, 16), (2, 19), (2, 22)];
        let expected = json!([[1, 4, 10, 3], [1, 16, 16], [2, 19, 22, 3]]);
        assert_eq!(runs(&of_shelf, 3), expected);
        // On one shelf a gap is a gap, also for readers that do not know about steps.
        let plain = [(1, 1), (1, 3), (1, 5), (1, 6)];
        assert_eq!(runs(&plain, 1), json!([[1, 1, 1], [1, 3, 3], [1, 5, 6]]));
        // A gate in memory has one place, regardless of the spread.
        assert_eq!(runs(&[(1, 1), (1, 2), (1, 3)], 3), json!([[1, 1, 3]]));
        // With a mix of several shelves, nothing is lost.
        runs(&[(1, 4), (1, 5), (1, 7), (1, 3), (1, 3)], 3);
        for damaged in [json!([[1, 1, 3, 0]]), json!([[1, 1, 3, "x"]])] {
            assert_eq!(orders_of("sku.7", &damaged), None);
        }
    }

    #[test]
    fn what_a_newer_program_wrote_is_not_guessed_at() {
        assert_eq!(what("sku", "moved", "{}"), None);
        assert_eq!(what("sku", "moved", "no json"), None);
        assert_eq!(what("sku", "sung", "{\"units\": 1}"), None);
    }
}
