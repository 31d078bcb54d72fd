//! The keys of an item, which share a slot.

use crate::order::{OrderId, Request};

/// The group that reads the queue.
pub(super) const GROUP: &str = "ledger";

#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) gate: String,
    pub(super) buyers: String,
    pub(super) answers: String,
    pub(super) orders: String,
    pub(super) dead: String,
}

impl Keys {
    pub(super) fn of(item: &str) -> Self {
        let key = |what: &str| format!("tenure:sale:{{{item}}}:{what}");
        Self {
            gate: key("gate"),
            buyers: key("buyers"),
            answers: key("answers"),
            orders: key("orders"),
            dead: key("dead"),
        }
    }
}

/// What the answer to a request is remembered by. Names hold no line feed.
pub(super) fn answer_field(buyer: &str, request: &str) -> String {
    format!("{buyer}\n{request}")
}

/// A remembered answer.
pub(super) fn answer(order: &OrderId, units: u64) -> String {
    format!("{}/{units}", entry_id(order))
}

/// The id of an entry of the queue.
pub(super) fn entry_id(order: &OrderId) -> String {
    format!("{}-{}", order.epoch(), order.number())
}

pub(super) fn order_id(item: &str, entry: &str) -> Option<OrderId> {
    let (epoch, number) = entry.split_once('-')?;
    Some(OrderId::new(
        item,
        epoch.parse().ok()?,
        number.parse().ok()?,
    ))
}

/// What the script wants to know of a request.
pub(super) fn push_request(arguments: &mut Vec<String>, request: &Request) {
    arguments.push(request.buyer().to_owned());
    arguments.push(request.id().to_owned());
    arguments.push(request.wanted().to_string());
}
