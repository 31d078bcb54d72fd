//! How a model is explored, and what is said about it.

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::action::Action;
use crate::model::Ballots;
use crate::rule::Rule;
use crate::scheme::Scheme;
use crate::trace;
use crate::world::World;

/// As many as CI has cores.
const THREADS: usize = 2;

/// Explores every state and returns how many there are. Fails if one of the promises is broken, or
/// if anything never happens that should.
pub fn holds<const N: usize, const A: usize>(
    name: &str,
    rule: Rule,
    world: World,
    promises: &[&'static str],
) -> usize {
    let model: Ballots<N, A> = Ballots::new(Scheme::Ballot(rule), world);
    let start = Instant::now();
    let checker = model.clone().checker().threads(THREADS).spawn_bfs().join();
    for property in model.properties() {
        let found = checker.discovery(property.name).is_some();
        if property.expectation == Expectation::Sometimes {
            assert!(found, "{name}: it never happens that {}", property.name);
        } else if promises.contains(&property.name) && found {
            let steps = shortest(&model, property.name).unwrap_or_default();
            let story = trace::tell(&model, &steps).join("\n  ");
            panic!(
                "{name}: it does not hold that {}:\n  {story}",
                property.name
            );
        }
    }
    let (states, seconds) = (checker.unique_state_count(), start.elapsed().as_secs_f64());
    println!("{states:>9} states {seconds:>5.1} s  {N} nodes, {A} acquisitions: {name}");
    states
}

/// Finds the shortest way to break the property, and tells it. Fails if there is none.
pub fn refutes<const N: usize, const A: usize>(
    name: &str,
    scheme: Scheme,
    world: World,
    property: &'static str,
) {
    let model: Ballots<N, A> = Ballots::new(scheme, world);
    let start = Instant::now();
    let steps = shortest(&model, property);
    let steps = steps.unwrap_or_else(|| panic!("{name}: it holds that {property}"));
    let (count, seconds) = (steps.len(), start.elapsed().as_secs_f64());
    println!("{count:>3} steps {seconds:>5.1} s  {name}: it does not hold that {property}");
    for line in trace::tell(&model, &steps) {
        println!("  {line}");
    }
}

/// The first trace that the checker reports need not be the shortest, so it is asked for shorter
/// ones until there is none.
fn shortest<const N: usize, const A: usize>(
    model: &Ballots<N, A>,
    property: &'static str,
) -> Option<Vec<Action>> {
    let mut found = None;
    // No model here is nearly as deep.
    let mut depth_limit = 1_000;
    loop {
        let found_it = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let checker = model.clone().checker().finish_when(found_it);
        let checker = checker.target_max_depth(depth_limit).spawn_bfs().join();
        let Some(path) = checker.discovery(property) else {
            return found;
        };
        let steps = path.into_actions();
        // The checker counts states and stops below its limit: this excludes as many steps again.
        depth_limit = steps.len() + 1;
        found = Some(steps);
    }
}
