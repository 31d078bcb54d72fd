//! What the model must find to be sound: the ballot, where its assumptions hold.

use crate::check::holds;
use crate::property::{ALL, EVERYTHING, FENCES};
use crate::rule::{Flaw, Rule};
use crate::world::{Proposals, Repairs, World};

/// Fewer would say little.
const STATES_MIN: usize = 1_000_000;

#[test]
fn the_ballot_holds() {
    let states = where_fences_are_kept() + where_fences_are_lost() + where_nodes_forget();
    println!("{states:>9} states together");
    assert!(states >= STATES_MIN, "only {states} states");
}

/// Ten times as many, for a long run of a release build.
#[test]
fn the_ballot_holds_at_length() {
    if std::env::var_os("TENURE_LONG").is_none() {
        println!("skipped: TENURE_LONG is not set");
        return;
    }
    let states = at_length();
    println!("{states:>9} states together");
    assert!(states >= 10 * STATES_MIN, "only {states} states");
}

fn where_fences_are_kept() -> usize {
    let keeping = World::KEEPING;
    let again = World {
        leases: &[0, 1, 0],
        ..keeping.clone()
    };
    let wider = World {
        proposals: Proposals::Any(1..=4),
        clock_error: 4,
        ..keeping.clone()
    };
    holds::<3, 3>("no fence is lost", Rule::BALLOT, keeping.clone(), ALL)
        + holds::<3, 3>("a lease asks for a further block", Rule::BALLOT, again, ALL)
        + holds::<5, 2>("no fence is lost", Rule::BALLOT, keeping, ALL)
        + holds::<3, 2>(
            "no fence is lost, first design",
            Rule::FIRST_DESIGN,
            wider,
            ALL,
        )
}

/// Nodes without an append-only file that restart with wrong clocks, asked by clients with different
/// longest ttls. No two may be believed at once.
fn where_nodes_forget() -> usize {
    let forgetting = World::FORGETTING;
    let shorter = World {
        longest_ttls: &[4, 1],
        ..forgetting.clone()
    };
    let longer = World {
        longest_ttls: &[6, 4],
        end: forgetting.end + 2,
        ..forgetting.clone()
    };
    // Fences do not depend on how long leases are.
    let not_told = World {
        proposals: Proposals::Any(2..=4),
        exclusive: false,
        start_error: 0,
        end: 4,
        clock_error: World::LOSING.clock_error,
        longest_ttls: &[12, 4],
        ..forgetting.clone()
    };
    let flaw = Rule::with(Flaw::LongerNotTold);
    let rule = Rule::BALLOT;
    holds::<3, 2>(
        "nodes forget, longer leases are not told",
        flaw,
        not_told,
        FENCES,
    ) + holds::<3, 2>(
        "nodes forget, clocks are wrong",
        rule,
        forgetting,
        EVERYTHING,
    ) + holds::<3, 2>(
        "nodes forget, one has shorter leases",
        rule,
        shorter,
        EVERYTHING,
    ) + holds::<3, 2>(
        "nodes forget, one has longer leases",
        rule,
        longer,
        EVERYTHING,
    )
}

/// With repairs only the fences are promised: that an overtaken lease is not brought back to a
/// majority of nodes takes nodes that keep what they know.
fn where_fences_are_lost() -> usize {
    let coarse = World::LOSING_COARSELY;
    let fewer = World {
        proposals: Proposals::Any(2..=3),
        ..coarse.clone()
    };
    let repaired = World {
        repairs: Repairs::AtAnyTime,
        ..fewer.clone()
    };
    holds::<3, 2>("fences are lost", Rule::BALLOT, World::LOSING, ALL)
        + holds::<3, 3>(
            "fences are lost, coarse time",
            Rule::COARSE,
            fewer.clone(),
            ALL,
        )
        + holds::<3, 2>("fences are lost, repairs", Rule::COARSE, repaired, FENCES)
}

fn at_length() -> usize {
    let keeping = World {
        proposals: Proposals::Any(1..=4),
        clock_error: 4,
        ..World::KEEPING
    };
    let losing = World {
        proposals: Proposals::Any(0..=7),
        end: 5,
        ..World::LOSING
    };
    let coarse = World {
        end: 3,
        ..World::LOSING_COARSELY
    };
    let repaired = World {
        repairs: Repairs::AtAnyTime,
        ..coarse.clone()
    };
    let five = World {
        proposals: Proposals::Any(2..=3),
        ..coarse.clone()
    };
    holds::<3, 3>("no fence is lost", Rule::BALLOT, keeping.clone(), ALL)
        + holds::<5, 2>("no fence is lost", Rule::BALLOT, keeping, ALL)
        + holds::<3, 2>("fences are lost", Rule::BALLOT, losing, ALL)
        + holds::<3, 3>(
            "fences are lost, coarse time",
            Rule::COARSE,
            coarse.clone(),
            ALL,
        )
        + holds::<5, 2>("fences are lost, coarse time", Rule::COARSE, five, ALL)
        + holds::<3, 2>("fences are lost, repairs", Rule::COARSE, repaired, FENCES)
}
