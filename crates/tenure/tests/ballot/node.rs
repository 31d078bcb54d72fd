//! The rule of one node, as the node's script carries it out: one atomic step for each request.
//!
//! Fences and clocks are microseconds in the script. Here they are small numbers: what matters is
//! only which of two is greater.

use crate::rule::Rule;

pub type Fence = i8;
pub type Micros = i8;
/// The id of a lease. Fresh for every lease, but a lease may ask for several blocks.
pub type Owner = u8;

/// What a node stores about one lock: two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub lock: Option<Owner>,
    /// The last fence that this node has granted.
    pub fence: Option<Fence>,
}

/// The fences that one grant reserves: `first` and those that follow it, `count` in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    pub first: Fence,
    pub count: i8,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub owner: Owner,
    pub block: Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted,
    /// Another lease has the lock.
    Busy,
    /// The block must begin above this.
    Stale {
        floor: Fence,
    },
    /// The block ends too far above this clock.
    Ahead {
        clock: Micros,
    },
}

impl Node {
    pub fn acquire(&mut self, rule: Rule, clock: Micros, request: Request) -> Answer {
        let Request { owner, block } = request;
        if self.lock.is_some_and(|holder| holder != owner) {
            return Answer::Busy;
        }
        if rule.is_repeat(*self, request) {
            return Answer::Granted;
        }
        let floor = rule.floor(self.fence, clock);
        if !rule.is_above(block.first, floor) {
            return Answer::Stale { floor };
        }
        if block.last() > clock.saturating_add(rule.ahead) {
            return Answer::Ahead { clock };
        }
        self.lock = Some(owner);
        self.fence = Some(rule.stored(block));
        Answer::Granted
    }

    /// Frees the lock if it is this owner's. The fence stays.
    pub fn release(&mut self, owner: Owner) {
        if self.lock == Some(owner) {
            self.lock = None;
        }
    }

    /// Gives a lease that others have back to a node that no longer has it.
    pub fn repair(&mut self, rule: Rule, request: Request) {
        let Request { owner, block } = request;
        let taken = self.lock.is_some_and(|holder| holder != owner);
        let overtaken = self.fence.is_some_and(|fence| fence > block.last());
        if taken || (overtaken && rule.minds_greater_fences()) {
            return;
        }
        self.lock = Some(owner);
        self.fence = Some(rule.stored_by_repair(self.fence, block));
    }
}

impl Block {
    pub fn last(self) -> Fence {
        self.first + self.count - 1
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last() && other.first <= self.last()
    }
}
