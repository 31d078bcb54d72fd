//! The model that is checked: where it begins, what can happen, what happens then.

use std::ops::RangeInclusive;

use stateright::{Model, Property};

use crate::action::Action;
use crate::node::{Micros, Owner, Request};
use crate::property;
use crate::rule::{Flaw, Floor, Rule};
use crate::scheme::Scheme;
use crate::state::{Acquisition, Phase, Site, Standing, State};
use crate::world::World;

/// `N` nodes and `A` acquisitions of one lock.
#[derive(Clone, Debug)]
pub struct Ballots<const N: usize, const A: usize> {
    pub scheme: Scheme,
    pub world: World,
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
                Phase::Won { handed_off } if handed_off + 1 < acquisition.block.count => {
                    actions.push(Action::HandOff { who });
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

    pub fn has(&self, flaw: Flaw) -> bool {
        self.rule().is_some_and(|rule| rule.has(flaw))
    }

    /// The rule of a node, asked by this acquisition's client.
    pub fn rule_for(&self, who: usize) -> Option<Rule> {
        let mut rule = self.rule()?;
        if rule.has(Flaw::BoundsByOwnTtl) {
            let quarter = self.longest_ttl(who) / 4;
            rule.ahead = quarter;
            rule.floor = Floor::Always(quarter);
        }
        Some(rule)
    }

    /// The longest ttl that this acquisition's client knows of, and the ttl of its lease.
    pub fn longest_ttl(&self, who: usize) -> Micros {
        let own = self.world.longest_ttls.get(who).copied();
        own.unwrap_or_else(|| self.rule().map_or(0, |rule| rule.rest))
    }

    /// How long a node that has restarted is not asked by this acquisition's client.
    pub fn rest(&self, who: usize) -> Micros {
        let own = self.longest_ttl(who);
        let least = self.rule().map_or(0, |rule| rule.rest);
        let told = self.world.longest_ttls.iter().copied().max();
        if self.has(Flaw::RestsByOwnTtl) {
            own
        } else if self.has(Flaw::LongerNotTold) || self.has(Flaw::BoundsByOwnTtl) {
            own.max(least)
        } else {
            own.max(least).max(told.unwrap_or(0))
        }
    }

    /// Whether this acquisition's client believes that the node must rest.
    pub fn is_resting(&self, now: Micros, site: &Site<A>, who: usize) -> bool {
        let Standing::Resting { since } = site.standing else {
            return false;
        };
        // By its own clock it may seem to be older.
        let by_uptime = self.has(Flaw::RestsByUptime) || !self.world.witness;
        let error = if by_uptime { self.world.start_error } else { 0 };
        now - since + error < self.rest(who)
    }

    pub fn owner(&self, who: usize) -> Owner {
        self.world.leases[who]
    }

    pub fn request(&self, state: &State<N, A>, who: usize) -> Request {
        let owner = self.owner(who);
        let block = state.acquisitions[who].block;
        Request { owner, block }
    }

    /// What a node's clock may show.
    pub fn clocks(&self, state: &State<N, A>) -> RangeInclusive<Micros> {
        state.now..=state.now + self.world.clock_error
    }

    pub fn is_majority(nodes: u8) -> bool {
        nodes.count_ones() as usize >= Self::MAJORITY
    }
}
