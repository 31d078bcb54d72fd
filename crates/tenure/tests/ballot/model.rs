//! Nodes, acquisitions, and every step that any of them can take.
//!
//! There is no list of messages. A request that was sent may arrive at any time and any number of
//! times, so that it was sent is all there is to know; an answer that was given may be heard at any
//! time, or never. An acquisition that is given up is one that never hears of its majority, and its
//! late release is one more way to lose a lock. A client that asks again is another acquisition.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use stateright::{Model, Property};

use crate::node::{Answer, Block, Fence, Micros, Node, Owner, Request};
use crate::property;
use crate::rule::{Flaw, Rule};
use crate::scheme::{self, Scheme};
use crate::world::{Losses, Proposals, Repairs, World};

/// `N` nodes and `A` acquisitions of one lock.
#[derive(Clone, Debug)]
pub struct Ballots<const N: usize, const A: usize> {
    scheme: Scheme,
    pub world: World,
}

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
    /// The greatest fence in the block of anybody who had won when the first request was sent.
    pub won_before: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Unsent,
    Asking,
    /// The second round of the register.
    Writing,
    /// So many fences beside the first were handed on inside the process.
    Won {
        handed_on: i8,
    },
}

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
    /// The holder hands the lease on inside its process, with the next fence.
    HandOn {
        who: usize,
    },
    /// A release arrives. Anybody may have given up or let go.
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

impl<const N: usize, const A: usize> Model for Ballots<N, A> {
    type State = State<N, A>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State {
            now: 0,
            sites: [Site::NEW; N],
            acquisitions: [Acquisition::UNSENT; A],
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        for (who, acquisition) in state.acquisitions.iter().enumerate() {
            match acquisition.phase {
                Phase::Unsent => {
                    self.sendings(state, who, actions);
                    // They begin in the order of their numbers: that only names them.
                    break;
                }
                Phase::Asking | Phase::Writing => self.hearings(state, who, actions),
                Phase::Won { handed_on } if handed_on + 1 < acquisition.block.count => {
                    actions.push(Action::HandOn { who });
                }
                Phase::Won { .. } => {}
            }
            for node in 0..N {
                self.arrivals(state, who, node, actions);
            }
        }
        for node in 0..N {
            self.losses(state, node, actions);
        }
        if state.now < self.world.end {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &Self::State, action: Action) -> Option<Self::State> {
        let mut state = before.clone();
        self.take(&mut state, action);
        state.sites.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::of(self)
    }
}

/// What can happen next. Steps that would change nothing are left out.
impl<const N: usize, const A: usize> Ballots<N, A> {
    fn sendings(&self, state: &State<N, A>, who: usize, actions: &mut Vec<Action>) {
        if self.rule().is_none() {
            let block = Acquisition::UNSENT.block;
            actions.push(Action::Send { who, block });
            return;
        }
        // A lease that asks for a further block knows its earlier ones.
        let own = (0..who).filter(|&earlier| self.owner(earlier) == self.owner(who));
        let own = own.map(|earlier| state.acquisitions[earlier].block);
        let within = self.has(Flaw::AsksWithin);
        let end = |block: Block| if within { block.first } else { block.last() };
        let above = own.map(end).max().unwrap_or(Fence::MIN);
        let proposals = self.proposals(state).into_iter();
        for first in proposals.filter(|&first| first > above) {
            for &count in self.world.counts {
                let block = Block { first, count };
                actions.push(Action::Send { who, block });
            }
        }
    }

    fn proposals(&self, state: &State<N, A>) -> BTreeSet<Fence> {
        match &self.world.proposals {
            Proposals::Any(range) => range.clone().collect(),
            Proposals::ByClock => {
                let stored = state.sites.iter().filter_map(|site| site.node.fence);
                let above_stored = stored.map(|fence| fence + 1).filter(|&it| it > state.now);
                self.clocks(state).chain(above_stored).collect()
            }
        }
    }

    fn hearings(&self, state: &State<N, A>, who: usize, actions: &mut Vec<Action>) {
        let answered = state
            .granted_to(who)
            .fold(0, |nodes, node| nodes | 1 << node);
        let all_say_the_same =
            self.rule().is_some() || state.acquisitions[who].phase == Phase::Writing;
        if all_say_the_same {
            if Self::is_majority(answered) {
                let nodes = answered;
                actions.push(Action::Hear { who, nodes });
            }
            return;
        }
        // Otherwise it matters who is heard first.
        let majorities = (0..1 << N).filter(|&nodes| Self::is_majority(nodes));
        for nodes in majorities.filter(|nodes| nodes & !answered == 0) {
            actions.push(Action::Hear { who, nodes });
        }
    }

    /// Whatever `who` has sent to this node, or may have sent.
    fn arrivals(&self, state: &State<N, A>, who: usize, node: usize, actions: &mut Vec<Action>) {
        let site = &state.sites[node];
        let request = self.request(state, who);
        let too_late =
            matches!(self.world.proposals, Proposals::ByClock) && request.block.first < state.now;
        // What a grant does to the node does not depend on the clock; a refusal does nothing.
        let mut clocks = self.clocks(state).filter(|_| !too_late);
        let phase = state.acquisitions[who].phase;
        let changes = |&clock: &Micros| {
            let (after, answer) = self.ask(site, request, phase, clock);
            after != site.node || (answer.is_some() && answer != site.answers[who])
        };
        if let Some(clock) = clocks.find(changes) {
            actions.push(Action::Arrive { who, node, clock });
        }
        if site.node.lock == Some(request.owner) {
            actions.push(Action::Release { who, node });
        }
        if site.node.lock.is_none() && self.may_be_repaired(state, who) {
            actions.push(Action::Repair { who, node });
        }
    }

    fn may_be_repaired(&self, state: &State<N, A>, who: usize) -> bool {
        let won = state.acquisitions[who].is_won() || self.has(Flaw::RepairsUnwon);
        won && self.world.repairs == Repairs::AtAnyTime
    }

    fn losses(&self, state: &State<N, A>, node: usize, actions: &mut Vec<Action>) {
        let Node { lock, fence } = state.sites[node].node;
        if lock.is_some() {
            actions.push(Action::LoseLock { node });
        }
        let Some(fence) = fence else {
            return;
        };
        if self.world.losses == Losses::Fences {
            let granted = (0..A).filter(|&who| state.sites[node].answers[who].is_some());
            let granted = granted.map(|who| state.acquisitions[who].block.last());
            let earlier = granted.filter(|&earlier| earlier < fence).map(Some);
            let left = std::iter::once(None).chain(earlier);
            actions.extend(left.map(|left| Action::LoseFence { node, left }));
        }
        if let (Some(kept), Some(rule)) = (self.world.fence_kept, self.rule()) {
            // It was granted when the clock showed this, or later.
            let granted = fence - rule.ahead;
            if state.now + self.world.clock_error >= granted + kept {
                actions.push(Action::FenceExpires { node });
            }
        }
    }
}

/// What happens then.
impl<const N: usize, const A: usize> Ballots<N, A> {
    pub fn take(&self, state: &mut State<N, A>, action: Action) {
        match action {
            Action::Send { who, block } => Self::send(state, who, block),
            Action::Arrive { who, node, clock } => self.arrive(state, who, node, clock),
            Action::Hear { who, nodes } => self.hear(state, who, nodes),
            Action::HandOn { who } => {
                if let Phase::Won { handed_on } = &mut state.acquisitions[who].phase {
                    *handed_on += 1;
                }
            }
            Action::Release { who, node } => state.sites[node].node.release(self.owner(who)),
            Action::Repair { who, node } => {
                let request = self.request(state, who);
                if let Some(rule) = self.rule() {
                    state.sites[node].node.repair(rule, request);
                }
            }
            Action::LoseLock { node } => state.sites[node].node.lock = None,
            Action::LoseFence { node, left } => {
                let lock = None;
                state.sites[node].node = Node { lock, fence: left };
                state.sites[node].standing = Standing::Resting { since: state.now };
                self.end_rests(state);
            }
            Action::FenceExpires { node } => state.sites[node].node.fence = None,
            Action::Tick => {
                state.now += 1;
                self.end_rests(state);
            }
        }
    }

    fn send(state: &mut State<N, A>, who: usize, block: Block) {
        let won = state.won().map(|other| other.block.last()).max();
        state.acquisitions[who] = Acquisition {
            phase: Phase::Asking,
            block,
            won_before: won,
        };
    }

    fn arrive(&self, state: &mut State<N, A>, who: usize, node: usize, clock: Micros) {
        let request = self.request(state, who);
        let phase = state.acquisitions[who].phase;
        let site = &mut state.sites[node];
        let (after, answer) = self.ask(site, request, phase, clock);
        site.node = after;
        site.answers[who] = answer.or(site.answers[who]);
    }

    /// The node after this request, and its answer if that is a vote.
    fn ask(
        &self,
        site: &Site<A>,
        request: Request,
        phase: Phase,
        clock: Micros,
    ) -> (Node, Option<Fence>) {
        let mut node = site.node;
        let resting = matches!(site.standing, Standing::Resting { .. });
        let answer = match self.scheme {
            Scheme::Ballot(_) if resting && !self.has(Flaw::AsksTheResting) => None,
            Scheme::Ballot(rule) => {
                let granted = node.acquire(rule, clock, request) == Answer::Granted;
                (granted && !resting).then_some(request.block.first)
            }
            Scheme::Counters => scheme::count(&mut node, request.owner),
            Scheme::Register if phase == Phase::Asking => scheme::look(&mut node, request.owner),
            Scheme::Register => Some(scheme::write(&mut node, request.block.first)),
        };
        (node, answer)
    }

    fn hear(&self, state: &mut State<N, A>, who: usize, nodes: u8) {
        let heard = (0..N).filter(|node| nodes & (1 << node) != 0);
        let answers = heard.filter_map(|node| state.sites[node].answers[who]);
        let greatest = answers.max().unwrap_or(Fence::MIN);
        let acquisition = &mut state.acquisitions[who];
        let first_round = acquisition.phase == Phase::Asking;
        if matches!(self.scheme, Scheme::Register) && first_round {
            acquisition.phase = Phase::Writing;
            acquisition.block.first = greatest + 1;
            for site in &mut state.sites {
                site.answers[who] = None;
            }
            return;
        }
        acquisition.phase = Phase::Won { handed_on: 0 };
        acquisition.block.first = greatest;
    }

    fn end_rests(&self, state: &mut State<N, A>) {
        let rest = self.rule().map_or(0, |rule| rule.rest);
        for site in &mut state.sites {
            if matches!(site.standing, Standing::Resting { since } if state.now - since >= rest) {
                site.standing = Standing::Rested;
            }
        }
    }
}

impl<const N: usize, const A: usize> Ballots<N, A> {
    pub const MAJORITY: usize = N / 2 + 1;

    pub fn new(scheme: Scheme, world: World) -> Self {
        Self { scheme, world }
    }

    pub fn rule(&self) -> Option<Rule> {
        match self.scheme {
            Scheme::Ballot(rule) => Some(rule),
            Scheme::Counters | Scheme::Register => None,
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.rule().is_some_and(|rule| rule.flaw == Some(flaw))
    }

    pub fn owner(&self, who: usize) -> Owner {
        self.world.leases[who]
    }

    fn request(&self, state: &State<N, A>, who: usize) -> Request {
        let owner = self.owner(who);
        let block = state.acquisitions[who].block;
        Request { owner, block }
    }

    /// What a node's clock may show.
    fn clocks(&self, state: &State<N, A>) -> RangeInclusive<Micros> {
        state.now..=state.now + self.world.clock_error
    }

    fn is_majority(nodes: u8) -> bool {
        nodes.count_ones() as usize >= Self::MAJORITY
    }
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
            Self::Send { .. } | Self::HandOn { .. } | Self::Tick => {}
        }
        self
    }
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
    const NEW: Self = Self {
        node: Node {
            lock: None,
            fence: None,
        },
        standing: Standing::Whole,
        answers: [None; A],
    };
}

impl Acquisition {
    const UNSENT: Self = Self {
        phase: Phase::Unsent,
        block: Block { first: 0, count: 1 },
        won_before: None,
    };

    pub fn is_won(self) -> bool {
        matches!(self.phase, Phase::Won { .. })
    }

    /// The fences that holders have been given.
    pub fn handed_out(self) -> Option<Block> {
        let Phase::Won { handed_on } = self.phase else {
            return None;
        };
        Some(Block {
            first: self.block.first,
            count: handed_on + 1,
        })
    }
}
