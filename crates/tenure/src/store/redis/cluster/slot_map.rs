//! Which node has which slot.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::redirect_reply::NodeAddress;
use super::slot::{SLOTS, Slot};
use crate::store::redis::node::Node;
use crate::store::redis::value::Value;
use crate::url::{Address, RedisTarget};

#[derive(Default)]
pub(super) struct SlotMap {
    /// The known primaries.
    nodes: Vec<Arc<Node>>,
    /// For each slot, the index of its primary in `nodes`.
    owners: Vec<Option<usize>>,
}

/// A range of slots and its primary, as a node reports it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    slots: RangeInclusive<u16>,
    owner: NodeAddress,
}

impl SlotMap {
    /// Builds the map from `ranges`, reusing known nodes. `make` makes the others.
    pub(super) fn of(
        ranges: &[SlotRange],
        asked: &RedisTarget,
        known: &[Arc<Node>],
        mut make: impl FnMut(RedisTarget) -> Arc<Node>,
    ) -> Self {
        let mut map = Self {
            nodes: Vec::new(),
            owners: vec![None; usize::from(SLOTS)],
        };
        for range in ranges {
            let target = range.owner.relative_to(asked);
            let known = known.iter().find(|node| node.is_at(&target.address));
            let owner = map.index_of(&target.address).unwrap_or_else(|| {
                map.nodes
                    .push(known.map_or_else(|| make(target), Arc::clone));
                map.nodes.len() - 1
            });
            for number in range.slots.clone() {
                map.owners[usize::from(number)] = Some(owner);
            }
        }
        map
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(super) fn owner(&self, slot: Slot) -> Option<&Arc<Node>> {
        let owner = self.owners.get(slot.index()).copied().flatten()?;
        self.nodes.get(owner)
    }

    /// The node at this address, if it is known.
    pub(super) fn node_at(&self, address: &Address) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.is_at(address))
    }

    /// The lowest slot of this node.
    pub(super) fn first_slot_of(&self, node: &Arc<Node>) -> Option<Slot> {
        let mut slots = (0..SLOTS).filter_map(Slot::numbered);
        slots.find(|slot| self.owner(*slot).is_some_and(|it| Arc::ptr_eq(it, node)))
    }

    /// Assigns a slot to this node.
    pub(super) fn assign(&mut self, slot: Slot, node: Arc<Node>) {
        let owner = self.index_of(&node.server.target.address);
        let owner = owner.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        self.owners.resize(usize::from(SLOTS), None);
        self.owners[slot.index()] = Some(owner);
    }

    /// Whether both assign the same slots to the same nodes.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        (0..SLOTS).filter_map(Slot::numbered).all(|slot| {
            match (self.owner(slot), other.owner(slot)) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
        })
    }

    fn index_of(&self, address: &Address) -> Option<usize> {
        self.nodes.iter().position(|node| node.is_at(address))
    }
}

/// Parses the reply to `CLUSTER SLOTS`; `None` if it is malformed.
pub(super) fn read(reply: &Value) -> Option<Vec<SlotRange>> {
    reply.as_array()?.iter().map(read_range).collect()
}

fn read_range(range: &Value) -> Option<SlotRange> {
    let [first, last, master, ..] = range.as_array()? else {
        return None;
    };
    let slot = |number: &Value| {
        let number = u16::try_from(number.as_int()?).ok()?;
        Slot::numbered(number).map(|_| number)
    };
    let [host, port, ..] = master.as_array()? else {
        return None;
    };
    Some(SlotRange {
        slots: slot(first)?..=slot(last)?,
        owner: NodeAddress::new(host.as_str(), u16::try_from(port.as_int()?).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value) -> Value {
        let master = Value::Array(vec![
            host,
            Value::Int(7000),
            text("id"),
            Value::Array(vec![]),
        ]);
        let replica = Value::Array(vec![text("h"), Value::Int(7003), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn shares_are_read_also_where_a_node_knows_no_host() {
        let reply = Value::Array(vec![range(0, 5, text("h")), range(6, 6, Value::Nil)]);
        let told = |slots, host| SlotRange {
            slots,
            owner: NodeAddress::new(host, 7000),
        };
        assert_eq!(
            read(&reply),
            Some(vec![told(0..=5, Some("h")), told(6..=6, None)])
        );
    }

    #[test]
    fn what_is_no_map_is_none() {
        let wrong = range(0, 16_384, text("h"));
        for reply in [
            Value::Int(1),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![wrong]),
        ] {
            assert_eq!(read(&reply), None, "{reply}");
        }
    }
}
