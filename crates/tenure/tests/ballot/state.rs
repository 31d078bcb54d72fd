//! What is remembered of nodes and acquisitions.
//!
//! There is no list of messages. A request that was sent may arrive at any time and any number of
//! times, so that it was sent is all there is to know; an answer that was given may be heard at any
//! time, or never. An acquisition that is given up is one that never hears of its majority, and its
//! late release is one more way to lose a lock. A client that asks again is another acquisition.

use crate::node::{Block, Fence, Micros, Node, Owner};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize, const A: usize> {
    pub now: Micros,
    /// Sorted: states that differ only in which node is which are one, so that more of them can be
    /// explored.
    pub sites: [Site<A>; N],
    pub acquisitions: [Acquisition; A],
}

/// A node, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site<const A: usize> {
    pub node: Node,
    pub standing: Standing,
    /// What it has answered to each acquisition that it granted. The client may have heard it or not.
    pub answers: [Option<Fence>; A],
    /// When its lock ends, where leases end in time.
    pub until: Micros,
}

/// Whether a node has all that it ever stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    Whole,
    /// It lost some of it at that time, and must rest.
    Resting {
        since: Micros,
    },
    /// It lost some of it, and has rested.
    Rested,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    pub phase: Phase,
    /// What is asked for. Other schemes than the ballot learn it from the nodes.
    pub block: Block,
    /// The greatest fence in the block of any client that had won when the first request was sent.
    pub won_before: Option<Fence>,
    /// When the first request was sent, where leases end in time.
    pub sent: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Unsent,
    Asking,
    /// The second round of the register.
    Writing,
    /// This many fences after the first were handed off inside the process.
    Won {
        handed_off: i8,
    },
}

impl<const N: usize, const A: usize> State<N, A> {
    pub fn won(&self) -> impl Iterator<Item = &Acquisition> {
        self.acquisitions.iter().filter(|one| one.is_won())
    }

    /// The nodes that this lease has.
    pub fn nodes_of(&self, owner: Owner) -> impl Iterator<Item = usize> {
        (0..N).filter(move |&node| self.sites[node].node.lock == Some(owner))
    }

    pub fn granted_to(&self, who: usize) -> impl Iterator<Item = usize> {
        (0..N).filter(move |&node| self.sites[node].answers[who].is_some())
    }
}

impl<const A: usize> Site<A> {
    pub const NEW: Self = Self {
        node: Node {
            lock: None,
            fence: None,
        },
        standing: Standing::Whole,
        answers: [None; A],
        until: 0,
    };
}

impl Acquisition {
    pub const UNSENT: Self = Self {
        phase: Phase::Unsent,
        block: Block { first: 0, count: 1 },
        won_before: None,
        sent: 0,
    };

    pub fn is_won(self) -> bool {
        matches!(self.phase, Phase::Won { .. })
    }

    /// The fences that holders have been given.
    pub fn handed_out(self) -> Option<Block> {
        let Phase::Won { handed_off } = self.phase else {
            return None;
        };
        Some(Block {
            first: self.block.first,
            count: handed_off + 1,
        })
    }
}
