//! The schemes that the model compares: the ballot, and two that look simpler.

use crate::node::{Fence, Node, Owner};
use crate::rule::Rule;

#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    /// The client proposes a block, and a majority grants that very block.
    Ballot(Rule),
    /// Each node counts by itself; the fence is the greatest count among a majority.
    Counters,
    /// The client takes the lock, reads the fences of a majority, and writes one more back.
    Register,
}

/// The first fence that nodes without any count from.
const NONE: Fence = 0;

/// `SET NX`, then `INCR`: the node's own count, unless another has the lock.
pub fn count(node: &mut Node, owner: Owner) -> Option<Fence> {
    let mut fence = node.fence.unwrap_or(NONE);
    if take(node, owner)? == Taken::Now {
        fence += 1;
        node.fence = Some(fence);
    }
    Some(fence)
}

/// `SET NX`, then `GET`: the fence that the node stores, unless another has the lock.
pub fn look(node: &mut Node, owner: Owner) -> Option<Fence> {
    take(node, owner)?;
    Some(node.fence.unwrap_or(NONE))
}

/// `SET`, regardless of the holder and the stored value.
pub fn write(node: &mut Node, fence: Fence) -> Fence {
    node.fence = Some(fence);
    fence
}

#[derive(PartialEq, Eq)]
enum Taken {
    Now,
    Before,
}

fn take(node: &mut Node, owner: Owner) -> Option<Taken> {
    match node.lock {
        Some(holder) if holder == owner => Some(Taken::Before),
        Some(_) => None,
        None => {
            node.lock = Some(owner);
            Some(Taken::Now)
        }
    }
}
