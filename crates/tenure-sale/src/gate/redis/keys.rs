//! The keys of an item, or of one of its shelves: they share a slot.

use tenure::redis::Arguments;

use crate::gate::spread::Place;
use crate::order::{OrderId, Request};

/// The number of slots of a cluster.
const SLOTS: u64 = 16_384;
/// How far a shelf's slot may be from its ideal slot: near the border of two nodes it would be on
/// the other node. A smaller distance takes more tries to find a name, once per item and process.
const ASIDE_MAX: u64 = 8;

/// The consumer group of the queue.
pub(super) const GROUP: &str = "ledger";

#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) gate: String,
    pub(super) buyers: String,
    pub(super) answers: String,
    pub(super) orders: String,
    pub(super) dead: String,
    /// The answers of an epoch that has ended, until its lost orders were looked for.
    pub(super) before: String,
}

impl Keys {
    /// With the prefix of the connection in front.
    pub(super) fn of(prefix: &str, item: &str, place: Place) -> Self {
        let tag = tag(item, place);
        // The mark separates them from the keys of an item that is named like a tag.
        let mark = if place.nth == 0 { "" } else { "shelf:" };
        let key = |what: &str| format!("{prefix}tenure:sale:{{{tag}}}:{mark}{what}");
        Self {
            gate: key("gate"),
            buyers: key("buyers"),
            answers: key("answers"),
            orders: key("orders"),
            dead: key("dead"),
            before: key("before"),
        }
    }

    /// All of them.
    pub(super) fn with_before(&self) -> [&String; 6] {
        let [gate, buyers, answers, orders, dead] = self.all();
        [gate, buyers, answers, orders, dead, &self.before]
    }

    /// Those of an item on sale, as scripts take them that look at the whole item.
    pub(super) fn all(&self) -> [&String; 5] {
        [
            &self.gate,
            &self.buyers,
            &self.answers,
            &self.orders,
            &self.dead,
        ]
    }
}

/// The hash tag of a shelf. The first one has the item's name, as if there were no others. The
/// others are named so that all slots are as far apart as possible: nodes with equal shares of the
/// slots have equal shares of the shelves.
fn tag(item: &str, place: Place) -> String {
    if place.nth == 0 {
        return item.to_owned();
    }
    let wanted = (slot(item) + place.nth * SLOTS / place.of) % SLOTS;
    let named = |salt: u64| format!("{item}#{}/{}.{salt}", place.nth, place.of);
    let near = |tag: &String| (slot(tag) + SLOTS - wanted) % SLOTS < ASIDE_MAX;
    // One in 2048 matches; if none of this many did, any would be as good.
    let found = (0..8 * SLOTS).map(named).find(near);
    found.unwrap_or_else(|| named(0))
}

/// The slot of a tag: CRC16, as in the cluster specification.
fn slot(tag: &str) -> u64 {
    let mut crc = 0_u16;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    u64::from(crc) % SLOTS
}

/// The key under which the answer to a request is remembered. Names contain no control characters.
///
/// Many ids are UUIDs, and there is one per order: 16 bytes instead of 36 save a sixth of the
/// memory of an order.
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

/// The buyer and the request of such a key; `None` if it is of something else.
pub(super) fn read_answer_field(field: &[u8]) -> Option<(String, String)> {
    let at = field.iter().position(|&byte| byte == b'\n')?;
    let (buyer, id) = (&field[..at], &field[at + 1..]);
    if buyer.is_empty() {
        return None;
    }
    let id = match id.split_first() {
        Some((0, bytes)) => unpacked(bytes.try_into().ok()?),
        _ => String::from_utf8(id.to_vec()).ok()?,
    };
    Some((String::from_utf8(buyer.to_vec()).ok()?, id))
}

fn unpacked(bytes: [u8; 16]) -> String {
    let mut id = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            id.push('-');
        }
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
        id.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    id
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
    format!("{}-{}/{units}", order.epoch(), order.number())
}

/// The order of a remembered answer, and its units.
pub(super) fn read_answer(item: &str, text: &str) -> Option<(OrderId, u64)> {
    let (order, units) = text.split_once('/')?;
    Some((order_id(item, order)?, units.parse().ok()?))
}

/// An order in the scripts' notation.
pub(super) fn order_id(item: &str, text: &str) -> Option<OrderId> {
    let (epoch, number) = text.split_once('-')?;
    Some(OrderId::new(
        item,
        epoch.parse().ok()?,
        number.parse().ok()?,
    ))
}

/// The script's arguments for a request: four of them.
pub(super) fn request_arguments(request: &Request) -> Arguments {
    let field = answer_field(request.buyer(), request.id());
    let bytes = field.len() + request.buyer().len() + request.id().len();
    let mut arguments = Arguments::with_capacity(bytes + 48);
    arguments.push(field);
    arguments.push(request.buyer()).push(request.id());
    match request.wanted() {
        1 => arguments.push("1"),
        units => arguments.push(units.to_string()),
    };
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot("123456789"), 0x31c3 % SLOTS);
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn shelves_lie_apart_and_their_keys_are_nobody_elses() {
        for of in [2, 3, 4, 6, 16, 64] {
            for item in ["sku-7", "a", "a#1/4.2", "ein Käse"] {
                let mut last = slot(item);
                for nth in 1..of {
                    let here = slot(&tag(item, Place { nth, of }));
                    let apart = (here + SLOTS - last) % SLOTS;
                    let fair = SLOTS / of;
                    assert!(
                        apart + ASIDE_MAX >= fair && apart <= fair + ASIDE_MAX + 1,
                        "{apart}"
                    );
                    last = here;
                }
            }
        }
        let place = Place { nth: 1, of: 4 };
        let shelf = Keys::of("", "a", place);
        let namesake = Keys::of("", &tag("a", place), Place::ONLY);
        assert_ne!(shelf.gate, namesake.gate);
        assert_eq!(Keys::of("", "a", Place::ONLY).gate, "tenure:sale:{a}:gate");
        assert_eq!(
            Keys::of("", "a", Place { nth: 0, of: 4 }).gate,
            "tenure:sale:{a}:gate"
        );
    }

    #[test]
    fn uuids_are_packed_and_nothing_else_is() {
        let uuid = "7e6d6fdc-4fcb-4f2e-9f0a-00112233445f";
        let field = answer_field("ann", uuid);
        assert_eq!(field.len(), 3 + 1 + 1 + 16);
        assert_eq!(field[..6], *b"ann\n\0\x7e");
        assert_eq!(field[20], 0x5f);
        let read = read_answer_field(&field);
        assert_eq!(read, Some(("ann".to_owned(), uuid.to_owned())));
        let plain = read_answer_field(&answer_field("ben", "r1"));
        assert_eq!(plain, Some(("ben".to_owned(), "r1".to_owned())));
        assert_eq!(read_answer_field(b"\nwithdrawal\nw1"), None);
        assert_eq!(read_answer_field(b"\n"), None);
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
