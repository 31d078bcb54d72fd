//! What the environment of a command tells about its locks.
//!
//! The first lock has `TENURE_NAME`, `TENURE_FENCE` and `TENURE_LEASE`. The others have a number,
//! beginning with `TENURE_NAME_2`. A permit also has `TENURE_SLOT`.

use std::env;

use super::held_locks::HeldLocks;

const NAME: &str = "TENURE_NAME";
const FENCE: &str = "TENURE_FENCE";
const LEASE: &str = "TENURE_LEASE";
const SLOT: &str = "TENURE_SLOT";

/// The variables for these locks, in their order.
pub fn of_locks(held: HeldLocks<'_>) -> Vec<(String, String)> {
    let locks = held.each().into_iter().enumerate();
    let variables = locks.flat_map(|(at, (name, fence, lease))| {
        [
            (numbered(NAME, at), name.to_string()),
            (numbered(FENCE, at), fence.to_string()),
            (numbered(LEASE, at), lease.to_string()),
        ]
    });
    let slot = held.slot().map(|slot| (SLOT.to_owned(), slot.to_string()));
    variables.chain(slot).collect()
}

/// The names and leases of the locks under which this very process runs.
pub fn own_locks() -> Vec<(String, String)> {
    let variable = |name: String| env::var(name).ok().filter(|value| !value.is_empty());
    let lock = |at| {
        Some((
            variable(numbered(NAME, at))?,
            variable(numbered(LEASE, at))?,
        ))
    };
    (0..).map_while(lock).collect()
}

/// The variables of the other locks under which this process runs: a command must not take them for
/// its own.
pub fn of_other_locks() -> Vec<String> {
    let is_numbered = |name: &String| {
        let numbers = [NAME, FENCE, LEASE]
            .into_iter()
            .filter_map(|word| name.strip_prefix(word)?.strip_prefix('_'));
        name == SLOT || numbers.into_iter().any(|it| it.parse::<u32>().is_ok())
    };
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(is_numbered).collect()
}

fn numbered(word: &str, at: usize) -> String {
    match at {
        0 => word.to_owned(),
        _ => format!("{word}_{}", at + 1),
    }
}
