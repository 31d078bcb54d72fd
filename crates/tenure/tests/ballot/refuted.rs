//! The schemes and flaws that the model must refute. If it could not, it would prove nothing.

use crate::check::{holds, refutes};
use crate::property::{DISJOINT, EXCLUSION, FENCES, GROWING, OVERTAKEN, UNIQUE};
use crate::rule::{Flaw, Floor, QUARTER, Rule};
use crate::scheme::Scheme;
use crate::world::{Proposals, Repairs, World};

#[test]
fn counters_of_their_own() {
    let world = World::KEEPING;
    refutes::<3, 2>("counters", Scheme::Counters, world.clone(), UNIQUE);
    refutes::<3, 2>("counters", Scheme::Counters, world, GROWING);
}

#[test]
fn read_then_write_back() {
    refutes::<3, 2>("register", Scheme::Register, World::KEEPING, UNIQUE);
}

#[test]
fn an_equal_fence_is_accepted() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::AcceptsEqual));
    refutes::<3, 2>("an equal fence is accepted", scheme, World::KEEPING, UNIQUE);
}

#[test]
fn the_first_fence_is_stored() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::StoresFirst));
    let name = "the first fence of a block is stored";
    refutes::<3, 2>(name, scheme, World::KEEPING, DISJOINT);
    refutes::<3, 2>(name, scheme, World::KEEPING, UNIQUE);
}

#[test]
fn a_lease_is_granted_any_further_block() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::RepeatsAnyBlock));
    let world = World {
        leases: &[0, 0, 1],
        counts: &[1],
        repairs: Repairs::Never,
        ..World::KEEPING
    };
    let name = "a lease is granted any further block";
    refutes::<3, 3>(name, scheme, world.clone(), UNIQUE);
    refutes::<3, 3>(name, scheme, world, GROWING);
}

/// The node's script knows a repeated request by the last fence of its block. So a lease must not ask
/// for two blocks with the same end.
#[test]
fn a_lease_asks_within_its_last_block() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::AsksWithin));
    let world = World {
        leases: &[0, 0],
        ..World::KEEPING
    };
    let name = "a lease asks within its last block";
    refutes::<3, 2>(name, scheme, world, UNIQUE);
}

#[test]
fn a_repair_lowers_the_fence() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::RepairLowersFence));
    let world = World {
        proposals: Proposals::Any(1..=2),
        counts: &[1],
        ..World::KEEPING
    };
    refutes::<3, 3>("a repair lowers the fence", scheme, world, UNIQUE);
}

/// That breaks no fence: the stored one stays. But it brings back a lease that was overtaken.
#[test]
fn a_repair_ignores_a_greater_fence() {
    let name = "a repair ignores a greater fence";
    let rule = Rule::with(Flaw::RepairsOvertaken);
    refutes::<3, 2>(name, Scheme::Ballot(rule), World::KEEPING, OVERTAKEN);
    holds::<3, 2>(name, rule, World::KEEPING, FENCES);
}

#[test]
fn an_attempt_without_a_majority_is_repaired() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::RepairsUnwon));
    let world = World {
        counts: &[1],
        ..World::KEEPING
    };
    let name = "an attempt without a majority is repaired";
    refutes::<3, 2>(name, scheme, world, UNIQUE);
}

#[test]
fn a_lost_fence_leaves_no_floor() {
    let scheme = Scheme::Ballot(Rule {
        floor: Floor::Nothing,
        ..Rule::COARSE
    });
    let name = "a lost fence leaves no floor";
    refutes::<3, 2>(name, scheme, World::LOSING_COARSELY, GROWING);
}

/// The first design: its bound of a day is longer than a node rests.
#[test]
fn a_client_far_ahead() {
    let scheme = Scheme::Ballot(Rule::FIRST_DESIGN);
    let world = World {
        proposals: Proposals::Any(5..=6),
        fence_kept: None,
        ..World::LOSING_COARSELY
    };
    refutes::<3, 2>("first design, a client far ahead", scheme, world, GROWING);
}

/// The first design with clients that go by the nodes' clocks: blocks alone carry fences ahead of
/// them. One long block stands for many short ones.
#[test]
fn fences_that_run_ahead() {
    let scheme = Scheme::Ballot(Rule::FIRST_DESIGN);
    let world = World {
        proposals: Proposals::ByClock,
        counts: &[2],
        fence_kept: None,
        ..World::LOSING_COARSELY
    };
    refutes::<3, 2>("first design, fences run ahead", scheme, world, GROWING);
}

/// The first design: a node that comes back with an older fence has one, so its clock is not asked.
/// Not even clocks that are right would help.
#[test]
fn a_node_that_comes_back_with_an_older_fence() {
    let scheme = Scheme::Ballot(Rule {
        floor: Floor::IfNoneIsStored(0),
        rest: 1,
        ..Rule::COARSE
    });
    let world = World {
        proposals: Proposals::Any(1..=2),
        clock_error: 0,
        fence_kept: None,
        ..World::LOSING_COARSELY
    };
    let name = "the clock counts only where no fence is stored";
    refutes::<3, 3>(name, scheme, world, GROWING);
}

#[test]
fn a_resting_node_is_asked() {
    let scheme = Scheme::Ballot(Rule {
        flaw: Some(Flaw::AsksTheResting),
        ..Rule::COARSE
    });
    let world = World {
        proposals: Proposals::Any(1..=2),
        fence_kept: None,
        ..World::LOSING_COARSELY
    };
    refutes::<3, 2>("a resting node is asked", scheme, world, GROWING);
}

/// Floor, ahead and the clocks' error fill the rest exactly: one more of any is too much.
#[test]
fn one_step_more_than_the_rest() {
    let refute = |name, rule, world| {
        refutes::<3, 2>(name, Scheme::Ballot(rule), world, GROWING);
    };
    let rule = Rule::COARSE;
    let world = World {
        fence_kept: None,
        ..World::LOSING_COARSELY
    };
    let floor = Floor::Always(1);
    refute("a lower floor", Rule { floor, ..rule }, world.clone());
    let ahead = 2;
    refute(
        "blocks further ahead",
        Rule { ahead, ..rule },
        world.clone(),
    );
    let rest = 1;
    refute("a shorter rest", Rule { rest, ..rule }, world.clone());
    let clock_error = 2;
    refute(
        "worse clocks",
        rule,
        World {
            clock_error,
            ..world
        },
    );
}

/// A fence that is kept shorter than a node would rest is as good as lost.
#[test]
fn a_fence_kept_too_short() {
    let world = World {
        fence_kept: Some(1),
        ..World::LOSING_COARSELY
    };
    let scheme = Scheme::Ballot(Rule::COARSE);
    refutes::<3, 2>("a fence kept too short", scheme, world, GROWING);
}

/// With nodes that forget, a repair can bring back a lease that was overtaken: exclusion then
/// depends on repairs that come in time. Fences do not.
#[test]
fn a_repair_after_a_lost_fence() {
    let scheme = Scheme::Ballot(Rule::COARSE);
    let world = World {
        repairs: Repairs::AtAnyTime,
        ..World::LOSING_COARSELY
    };
    refutes::<3, 2>("a repair after a lost fence", scheme, world, OVERTAKEN);
}

/// Two nodes restart far behind, are corrected, and say that they have run for long.
#[test]
fn a_rest_by_the_nodes_own_clocks() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::RestsByUptime));
    let name = "a rest by the nodes' own clocks";
    refutes::<3, 2>(name, scheme, World::FORGETTING, EXCLUSION);
}

/// The assumption that is left: a fresh client that reaches only nodes which restarted has nothing
/// to go by but their clocks.
#[test]
fn a_client_that_reaches_no_witness() {
    let world = World {
        witness: false,
        ..World::FORGETTING
    };
    let scheme = Scheme::Ballot(Rule::BALLOT);
    refutes::<3, 2>("no witness", scheme, world.clone(), EXCLUSION);
    let clocks_are_right = World {
        start_error: 0,
        ..world
    };
    holds::<3, 2>(
        "no witness, clocks are right",
        Rule::BALLOT,
        clocks_are_right,
        &[EXCLUSION],
    );
}

/// A client with shorter leases does not wait for the longer ones of others.
#[test]
fn a_rest_by_the_clients_own_longest_ttl() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::RestsByOwnTtl));
    let world = World {
        longest_ttls: &[4, 1],
        ..World::FORGETTING
    };
    let name = "a rest by the client's own longest ttl";
    refutes::<3, 2>(name, scheme, world, EXCLUSION);
}

/// Leases above the shortest rest must be told to every client first.
#[test]
fn longer_leases_that_are_not_told() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::LongerNotTold));
    let world = World {
        longest_ttls: &[6, 4],
        ..World::FORGETTING
    };
    refutes::<3, 2>("longer leases are not told", scheme, world, EXCLUSION);
}

/// A client with long leases would let fences run further ahead than a client with short ones waits.
#[test]
fn bounds_by_the_clients_own_longest_ttl() {
    let scheme = Scheme::Ballot(Rule::with(Flaw::BoundsByOwnTtl));
    let world = World {
        proposals: Proposals::Any(2..=6),
        longest_ttls: &[12, 4],
        exclusive: false,
        start_error: 0,
        end: 5,
        clock_error: 2 * QUARTER,
        ..World::FORGETTING
    };
    let name = "bounds by the client's own longest ttl";
    refutes::<3, 2>(name, scheme, world, GROWING);
}
