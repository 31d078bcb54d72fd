//! What clients may ask for, and what the world may do to the nodes.
//!
//! Messages need no setting. Whatever was sent may arrive at any time, any number of times, in any
//! order, or never. And any lock may vanish at any time.

use std::ops::RangeInclusive;

use crate::node::{Fence, Micros, Owner};
use crate::rule::{LONGEST_TTL, QUARTER};

#[derive(Clone, Debug)]
pub struct World {
    pub proposals: Proposals,
    /// How many fences they ask for.
    pub counts: &'static [i8],
    /// The lease that each acquisition is for. Acquisitions of one lease ask for growing blocks.
    pub leases: &'static [Owner],
    /// When the model ends. Time begins at 0.
    pub end: Micros,
    /// How much a node's clock may be ahead of time whenever it is read. It is never behind, for
    /// only the difference between two readings matters.
    pub clock_error: Micros,
    pub losses: Losses,
    /// How long a node keeps a fence after its grant, if not for ever.
    pub fence_kept: Option<Micros>,
    pub repairs: Repairs,
    /// The longest ttl of the client of each acquisition, and the ttl of its lease. None: as long as
    /// a node rests at least.
    pub longest_ttls: &'static [Micros],
    /// How far the clock of a node may be behind when it starts, and be corrected since.
    pub start_error: Micros,
    /// Whether one node never restarts, and every client asks it since when the others run.
    pub witness: bool,
    /// Whether leases end when they should and not before, unless a node forgets them: then no two
    /// may be believed at once.
    pub exclusive: bool,
}

/// What clients propose as the first fence of a block.
#[derive(Clone, Debug)]
pub enum Proposals {
    /// Anything among these: their clocks may be wrong.
    Any(RangeInclusive<Fence>),
    /// What a node's clock shows, or one more than a fence that some node stores, if that is
    /// greater. Such a request does not arrive when time has passed its first fence: it carries its
    /// latest moment.
    ByClock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// A crash loses locks, never fences.
    Locks,
    /// A crash may lose fences too: all, or those since an earlier one.
    Fences,
}

/// Whether a lease is offered to nodes that no longer have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repairs {
    Never,
    /// By any winner, at any time. That covers every repair that was sent in time and arrives
    /// late, and more.
    AtAnyTime,
}

impl World {
    /// Nodes keep their fences. Time stands still, but clocks show anything, differently each time.
    pub const KEEPING: Self = Self {
        proposals: Proposals::Any(1..=3),
        counts: &[1, 2],
        leases: &[0, 1, 2],
        end: 0,
        clock_error: 3,
        losses: Losses::Locks,
        fence_kept: None,
        repairs: Repairs::AtAnyTime,
        longest_ttls: &[],
        start_error: 0,
        witness: false,
        exclusive: false,
    };

    /// Nodes may lose their fences. Their clocks err by half the longest ttl.
    pub const LOSING: Self = Self {
        proposals: Proposals::Any(2..=4),
        counts: &[1, 2],
        leases: &[0, 1],
        end: LONGEST_TTL,
        clock_error: 2 * QUARTER,
        losses: Losses::Fences,
        fence_kept: Some(LONGEST_TTL),
        repairs: Repairs::Never,
        longest_ttls: &[],
        start_error: 0,
        witness: false,
        exclusive: false,
    };

    /// Nodes may forget everything, and restart with clocks that are wrong for longer than they
    /// rest. Leases end in time.
    pub const FORGETTING: Self = Self {
        proposals: Proposals::ByClock,
        counts: &[1],
        end: LONGEST_TTL + 3,
        clock_error: QUARTER,
        fence_kept: None,
        start_error: 2 * LONGEST_TTL,
        witness: true,
        exclusive: true,
        ..Self::LOSING
    };

    /// The same with time in halves of the longest ttl, so that there is room for more of everything
    /// else.
    pub const LOSING_COARSELY: Self = Self {
        proposals: Proposals::Any(1..=3),
        counts: &[1],
        leases: &[0, 1, 2],
        end: 2,
        clock_error: 1,
        fence_kept: Some(2),
        ..Self::LOSING
    };
}
