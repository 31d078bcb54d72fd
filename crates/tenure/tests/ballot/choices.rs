//! What can happen next. Steps that would change nothing are left out.

use std::collections::BTreeSet;

use crate::action::Action;
use crate::model::Ballots;
use crate::node::{Block, Fence, Micros, Node};
use crate::rule::Flaw;
use crate::state::{Acquisition, Phase, Site, Standing, State};
use crate::world::{Losses, Proposals, Repairs};

impl<const N: usize, const A: usize> Ballots<N, A> {
    pub fn sendings(&self, state: &State<N, A>, who: usize, actions: &mut Vec<Action>) {
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

    pub fn hearings(&self, state: &State<N, A>, who: usize, actions: &mut Vec<Action>) {
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
    pub fn arrivals(
        &self,
        state: &State<N, A>,
        who: usize,
        node: usize,
        actions: &mut Vec<Action>,
    ) {
        let site = &state.sites[node];
        let request = self.request(state, who);
        let too_late =
            matches!(self.world.proposals, Proposals::ByClock) && request.block.first < state.now;
        // What a grant does to the node does not depend on the clock; a refusal does nothing.
        let mut clocks = self.clocks(state).filter(|_| !too_late);
        let changes = |&clock: &Micros| {
            let (after, answer) = self.ask(state, who, node, clock);
            after != site.node || (answer.is_some() && answer != site.answers[who])
        };
        if let Some(clock) = clocks.find(changes) {
            actions.push(Action::Arrive { who, node, clock });
        }
        if site.node.lock == Some(request.owner) && !self.world.exclusive {
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

    pub fn losses(&self, state: &State<N, A>, node: usize, actions: &mut Vec<Action>) {
        let Node { lock, fence } = state.sites[node].node;
        let may_end = !self.world.exclusive || state.now >= state.sites[node].until;
        if lock.is_some() && may_end {
            actions.push(Action::LoseLock { node });
        }
        let Some(fence) = fence else {
            return;
        };
        let is_whole = |site: &&Site<A>| site.standing == Standing::Whole;
        let whole = state.sites.iter().filter(is_whole).count();
        let is_witness = self.world.witness && whole == 1 && is_whole(&&state.sites[node]);
        if self.world.losses == Losses::Fences && !is_witness {
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
