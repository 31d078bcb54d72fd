//! What a node's rule leaves open: its limits, and the flaws it could have.

use crate::node::{Block, Fence, Micros, Node, Request};

/// The longest ttl of a lease, where time goes in quarters of it.
pub const LONGEST_TTL: Micros = 4;
pub const QUARTER: Micros = 1;
/// Longer than anything else here lasts, as a day is to a lease.
const DAY: Micros = 8;

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub floor: Floor,
    /// How far a block may end above the node's clock.
    pub ahead: Micros,
    /// How long a node that came back without its newest data is not asked, at least.
    pub rest: Micros,
    pub flaw: Option<Flaw>,
}

/// What a block must be above, in addition to the node's stored fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    Nothing,
    /// The clock less this, where no fence is stored.
    IfNoneIsStored(Micros),
    /// The clock less this.
    Always(Micros),
}

/// One thing done wrong. Each is refuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A block may begin at the stored fence.
    AcceptsEqual,
    /// The node stores the first fence of the block, not the last.
    StoresFirst,
    /// A lease that has the lock is granted whatever block it asks for.
    RepeatsAnyBlock,
    /// A lease asks for a further block that begins within its last one.
    AsksWithin,
    /// A repair does not look at the stored fence, but never lowers it.
    RepairsOvertaken,
    /// A repair does not look at the stored fence, and writes its own.
    RepairLowersFence,
    /// An attempt that has some nodes is repaired on the others.
    RepairsUnwon,
    /// A node that must rest is asked, and its grant is not counted until it has rested.
    AsksTheResting,
    /// A node's rest goes by the age that it tells by its own wall clock.
    RestsByUptime,
    /// A node rests for the client's own longest ttl.
    RestsByOwnTtl,
    /// A client does not hear that others use longer leases.
    LongerNotTold,
    /// How far a block may be from a node's clock follows the client's own longest ttl.
    BoundsByOwnTtl,
}

impl Rule {
    /// What Tenure does.
    pub const BALLOT: Self = Self {
        floor: Floor::Always(QUARTER),
        ahead: QUARTER,
        rest: LONGEST_TTL,
        flaw: None,
    };

    /// The same in coarser steps: time goes in halves of the longest ttl, and the floor is the clock
    /// itself.
    pub const COARSE: Self = Self {
        floor: Floor::Always(0),
        ahead: 1,
        rest: 2,
        flaw: None,
    };

    /// As it was designed at first, in halves too. Sound only where no node loses a fence.
    pub const FIRST_DESIGN: Self = Self {
        floor: Floor::IfNoneIsStored(1),
        ahead: DAY,
        rest: 2,
        flaw: None,
    };

    pub const fn with(flaw: Flaw) -> Self {
        Self {
            flaw: Some(flaw),
            ..Self::BALLOT
        }
    }

    /// Whether the node has granted this very request, and still stands by it.
    pub fn is_repeat(self, node: Node, request: Request) -> bool {
        let same_block = node.fence == Some(self.stored(request.block));
        node.lock == Some(request.owner) && (same_block || self.has(Flaw::RepeatsAnyBlock))
    }

    pub fn floor(self, stored: Option<Fence>, clock: Micros) -> Fence {
        match (self.floor, stored) {
            (Floor::Always(lag), stored) => (clock - lag).max(stored.unwrap_or(Fence::MIN)),
            (Floor::IfNoneIsStored(lag), None) => clock - lag,
            (_, stored) => stored.unwrap_or(Fence::MIN),
        }
    }

    pub fn is_above(self, first: Fence, floor: Fence) -> bool {
        first > floor || (self.has(Flaw::AcceptsEqual) && first == floor)
    }

    pub fn stored(self, block: Block) -> Fence {
        if self.has(Flaw::StoresFirst) {
            block.first
        } else {
            block.last()
        }
    }

    pub fn minds_greater_fences(self) -> bool {
        !self.has(Flaw::RepairsOvertaken) && !self.has(Flaw::RepairLowersFence)
    }

    pub fn stored_by_repair(self, stored: Option<Fence>, block: Block) -> Fence {
        let stored = stored.filter(|_| !self.has(Flaw::RepairLowersFence));
        block.last().max(stored.unwrap_or(Fence::MIN))
    }

    pub fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}
