//! What happens then.

use crate::action::Action;
use crate::model::Ballots;
use crate::node::{Answer, Block, Fence, Micros, Node};
use crate::rule::Flaw;
use crate::scheme::{self, Scheme};
use crate::state::{Acquisition, Phase, Standing, State};

impl<const N: usize, const A: usize> Ballots<N, A> {
    pub fn take(&self, state: &mut State<N, A>, action: Action) {
        match action {
            Action::Send { who, block } => self.send(state, who, block),
            Action::Arrive { who, node, clock } => self.arrive(state, who, node, clock),
            Action::Hear { who, nodes } => self.hear(state, who, nodes),
            Action::HandOff { who } => {
                if let Phase::Won { handed_off } = &mut state.acquisitions[who].phase {
                    *handed_off += 1;
                }
            }
            Action::Release { who, node } => state.sites[node].node.release(self.owner(who)),
            Action::Repair { who, node } => {
                let request = self.request(state, who);
                if let Some(rule) = self.rule() {
                    state.sites[node].node.repair(rule, request);
                }
            }
            Action::LoseLock { node } => {
                state.sites[node].node.lock = None;
                state.sites[node].until = 0;
            }
            Action::LoseFence { node, left } => {
                let lock = None;
                state.sites[node].node = Node { lock, fence: left };
                state.sites[node].standing = Standing::Resting { since: state.now };
                state.sites[node].until = 0;
                self.end_rests(state);
            }
            Action::FenceExpires { node } => state.sites[node].node.fence = None,
            Action::Tick => {
                state.now += 1;
                self.end_rests(state);
            }
        }
    }

    fn send(&self, state: &mut State<N, A>, who: usize, block: Block) {
        let won = state.won().map(|other| other.block.last()).max();
        state.acquisitions[who] = Acquisition {
            phase: Phase::Asking,
            block,
            won_before: won,
            sent: if self.world.exclusive { state.now } else { 0 },
        };
    }

    fn arrive(&self, state: &mut State<N, A>, who: usize, node: usize, clock: Micros) {
        let (after, answer) = self.ask(state, who, node, clock);
        let ends = state.now + self.longest_ttl(who);
        let site = &mut state.sites[node];
        site.node = after;
        if self.world.exclusive && answer.is_some() {
            site.until = ends;
        }
        site.answers[who] = answer.or(site.answers[who]);
    }

    /// The node after this request, and its answer if that is a vote.
    pub fn ask(
        &self,
        state: &State<N, A>,
        who: usize,
        node: usize,
        clock: Micros,
    ) -> (Node, Option<Fence>) {
        let (site, request) = (&state.sites[node], self.request(state, who));
        let phase = state.acquisitions[who].phase;
        let mut node = site.node;
        let resting = self.is_resting(state.now, site, who);
        let answer = match self.scheme {
            Scheme::Ballot(_) if resting && !self.has(Flaw::AsksTheResting) => None,
            Scheme::Ballot(rule) => {
                let rule = self.rule_for(who).unwrap_or(rule);
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
        acquisition.phase = Phase::Won { handed_off: 0 };
        acquisition.block.first = greatest;
    }

    fn end_rests(&self, state: &mut State<N, A>) {
        let rest = (0..A).map(|who| self.rest(who)).max().unwrap_or(0);
        for site in &mut state.sites {
            if matches!(site.standing, Standing::Resting { since } if state.now - since >= rest) {
                site.standing = Standing::Rested;
            }
        }
    }
}
