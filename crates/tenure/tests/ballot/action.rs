//! The steps that nodes, clients and the world can take.

use crate::node::{Block, Fence, Micros};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client sends its request to all nodes.
    Send {
        who: usize,
        block: Block,
    },
    /// The request arrives, for the first time or again.
    Arrive {
        who: usize,
        node: usize,
        clock: Micros,
    },
    /// The client hears these nodes, a majority.
    Hear {
        who: usize,
        nodes: u8,
    },
    /// The holder hands the lease off inside its process, with the next fence.
    HandOff {
        who: usize,
    },
    /// A release arrives. Any client may have given up or released.
    Release {
        who: usize,
        node: usize,
    },
    /// A repair arrives.
    Repair {
        who: usize,
        node: usize,
    },
    /// The lock expires, is deleted, or is lost in a crash that keeps the fence.
    LoseLock {
        node: usize,
    },
    /// A crash takes the node back to an earlier fence, or to none.
    LoseFence {
        node: usize,
        left: Option<Fence>,
    },
    /// The fence was kept for as long as it should.
    FenceExpires {
        node: usize,
    },
    Tick,
}

impl Action {
    /// The same on the nodes that this says instead of those named.
    pub fn on_node(mut self, other: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Arrive { node, .. }
            | Self::Release { node, .. }
            | Self::Repair { node, .. }
            | Self::LoseLock { node }
            | Self::LoseFence { node, .. }
            | Self::FenceExpires { node } => *node = other(*node),
            Self::Hear { nodes, .. } => {
                let named = (0..8).filter(|node| *nodes & (1 << node) != 0);
                *nodes = named.fold(0, |all, node| all | 1 << other(node));
            }
            Self::Send { .. } | Self::HandOff { .. } | Self::Tick => {}
        }
        self
    }
}
