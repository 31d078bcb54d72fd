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

/// What the answer to a request is remembered by. Names hold no control character.
///
/// Many ids are UUIDs, and there is one for each order: 16 bytes instead of 36 are a sixth of what an
/// order takes.
pub(super) fn answer_field(buyer: &str, request: &str) -> Vec<u8> {
    let mut field = Vec::with_capacity(buyer.len() + request.len() + 1);
    field.extend(buyer.as_bytes());
    field.push(b'\n');
    match packed(request) {
        Some(bytes) => {
            field.push(0);
            field.extend(bytes);
        }
        None => field.extend(request.as_bytes()),
    }
    field
}

/// The bytes of a UUID in its usual form: lowercase, with hyphens.
fn packed(id: &str) -> Option<[u8; 16]> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    if id.len() != 36 || HYPHENS.iter().any(|&at| id.as_bytes()[at] != b'-') {
        return None;
    }
    let mut digits = (0..36).filter(|at| !HYPHENS.contains(at));
    let mut digit = || match id.as_bytes()[digits.next()?] {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = 16 * digit()? + digit()?;
    }
    Some(bytes)
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

/// What the script wants to know of a request: four arguments.
pub(super) fn push_request(arguments: &mut Vec<Vec<u8>>, request: &Request) {
    arguments.push(answer_field(request.buyer(), request.id()));
    arguments.push(request.buyer().into());
    arguments.push(request.id().into());
    arguments.push(request.wanted().to_string().into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_packed_and_nothing_else_is() {
        let uuid = "7e6d6fdc-4fcb-4f2e-9f0a-00112233445f";
        let field = answer_field("ann", uuid);
        assert_eq!(field.len(), 3 + 1 + 1 + 16);
        assert_eq!(field[..6], *b"ann\n\0\x7e");
        assert_eq!(field[20], 0x5f);
        for plain in [
            "",
            "r1",
            "7E6D6FDC-4FCB-4F2E-9F0A-00112233445F",
            "7e6d6fdc-4fcb-4f2e-9f0a-00112233445g",
            "7e6d6fdc+4fcb-4f2e-9f0a-00112233445f",
            "7e6d6fdc-4fcb-4f2e-9f0a-00112233445",
            "7e6d6fdc-4fcb-4f2e-9f0aé00112233445",
        ] {
            assert_eq!(
                answer_field("ann", plain),
                format!("ann\n{plain}").into_bytes()
            );
        }
    }
}
