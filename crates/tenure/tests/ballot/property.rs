//! What must always hold, and what must sometimes happen so that holding means something.

use stateright::Property;

use crate::model::Ballots;
use crate::state::{Acquisition, Phase, Standing, State};
use crate::world::{Losses, Repairs};

/// No two holders are ever given the same fence.
pub const UNIQUE: &str = "every fence is handed out once";
/// No two that won share a fence, handed out or not.
pub const DISJOINT: &str = "blocks are disjoint";
/// A client that begins to ask after another has won gets fences above the winner's whole block.
pub const GROWING: &str = "fences grow in real time";
/// When a greater block has won, a lower one never again has a majority, so it is not renewed.
pub const OVERTAKEN: &str = "an overtaken lease has no majority";

/// No two leases are believed at the same time.
pub const EXCLUSION: &str = "one lease is believed at a time";

/// What is promised of fences.
pub const FENCES: &[&str] = &[UNIQUE, DISJOINT, GROWING];
/// What is promised of fences, and of leases.
pub const ALL: &[&str] = &[UNIQUE, DISJOINT, GROWING, OVERTAKEN];
/// The same, and of believing in a lease, where leases end in time.
pub const EVERYTHING: &[&str] = &[UNIQUE, DISJOINT, GROWING, OVERTAKEN, EXCLUSION];

const SUCCESSION: &str = "one wins after another";
const HAND_OFF: &str = "a lease is handed off";
const REPAIR: &str = "a lease stands on a repaired node";
const RETURN: &str = "a node that lost its fence votes again";

/// The properties that this model should have.
pub fn of<const N: usize, const A: usize>(model: &Ballots<N, A>) -> Vec<Property<Ballots<N, A>>> {
    let mut properties = vec![
        Property::always(UNIQUE, unique),
        Property::always(DISJOINT, disjoint),
        Property::always(GROWING, growing),
        Property::sometimes(SUCCESSION, succession),
    ];
    if model.rule().is_none() {
        return properties;
    }
    properties.push(Property::always(OVERTAKEN, overtaken));
    if model.world.exclusive {
        properties.push(Property::always(EXCLUSION, exclusion));
    }
    if model.world.counts.iter().any(|&count| count > 1) {
        properties.push(Property::sometimes(HAND_OFF, hand_off));
    }
    if model.world.repairs != Repairs::Never {
        properties.push(Property::sometimes(REPAIR, repair));
    }
    if model.world.losses == Losses::Fences {
        properties.push(Property::sometimes(RETURN, votes_again));
    }
    properties
}

fn unique<const N: usize, const A: usize>(_: &Ballots<N, A>, state: &State<N, A>) -> bool {
    pairs(state).all(|(a, b)| match (a.handed_out(), b.handed_out()) {
        (Some(a), Some(b)) => !a.overlaps(b),
        _ => true,
    })
}

fn disjoint<const N: usize, const A: usize>(_: &Ballots<N, A>, state: &State<N, A>) -> bool {
    pairs(state).all(|(a, b)| !a.is_won() || !b.is_won() || !a.block.overlaps(b.block))
}

fn growing<const N: usize, const A: usize>(_: &Ballots<N, A>, state: &State<N, A>) -> bool {
    let is_above = |one: &Acquisition| one.won_before.is_none_or(|last| one.block.first > last);
    state.won().all(is_above)
}

fn overtaken<const N: usize, const A: usize>(model: &Ballots<N, A>, state: &State<N, A>) -> bool {
    let Some(greatest) = state.won().map(|one| one.block.first).max() else {
        return true;
    };
    // The greatest that a lease has asked for.
    let asked = |owner| {
        let of_lease = (0..A).filter(move |&who| model.owner(who) == owner);
        let sent = of_lease.map(|who| &state.acquisitions[who]);
        sent.filter(|one| one.phase != Phase::Unsent)
            .map(|one| one.block.first)
            .max()
    };
    let holders = state.sites.iter().filter_map(|site| site.node.lock);
    let mut overtaken = holders.filter(|&owner| asked(owner) < Some(greatest));
    overtaken.all(|owner| state.nodes_of(owner).count() < Ballots::<N, A>::MAJORITY)
}

fn exclusion<const N: usize, const A: usize>(model: &Ballots<N, A>, state: &State<N, A>) -> bool {
    let believed = (0..A).filter(|&who| {
        let one = &state.acquisitions[who];
        one.is_won() && state.now < one.sent + model.longest_ttl(who)
    });
    let mut owners: Vec<_> = believed.map(|who| model.owner(who)).collect();
    owners.dedup();
    owners.len() <= 1
}

fn succession<const N: usize, const A: usize>(_: &Ballots<N, A>, state: &State<N, A>) -> bool {
    state.won().any(|one| one.won_before.is_some())
}

fn hand_off<const N: usize, const A: usize>(_: &Ballots<N, A>, state: &State<N, A>) -> bool {
    let handed_out = state.won().filter_map(|one| one.handed_out());
    handed_out.map(|block| block.count).any(|count| count > 1)
}

/// A majority has the lease, but fewer of those nodes have ever granted it.
fn repair<const N: usize, const A: usize>(model: &Ballots<N, A>, state: &State<N, A>) -> bool {
    (0..A).any(|who| {
        let owner = model.owner(who);
        let granted = |node: &usize| state.sites[*node].answers[who].is_some();
        state.acquisitions[who].is_won()
            && state.nodes_of(owner).count() >= Ballots::<N, A>::MAJORITY
            && state.nodes_of(owner).filter(granted).count() < Ballots::<N, A>::MAJORITY
    })
}

/// A client won after another, and has no majority without a node that lost its fence.
fn votes_again<const N: usize, const A: usize>(_: &Ballots<N, A>, state: &State<N, A>) -> bool {
    (0..A).any(|who| {
        let one = &state.acquisitions[who];
        let whole = |node: &usize| state.sites[*node].standing == Standing::Whole;
        one.is_won()
            && one.won_before.is_some()
            && state.granted_to(who).filter(whole).count() < Ballots::<N, A>::MAJORITY
    })
}

fn pairs<const N: usize, const A: usize>(
    state: &State<N, A>,
) -> impl Iterator<Item = (&Acquisition, &Acquisition)> {
    let all = &state.acquisitions;
    (0..A).flat_map(move |a| (0..a).map(move |b| (&all[a], &all[b])))
}
