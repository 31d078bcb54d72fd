//! What every store promises. Each case is written once and runs on each store.

mod acquire;
mod election;
mod fair;
mod fences;
mod guards;
mod hand_off;
mod keep;
mod latch;
mod lifecycle;
mod living;
mod mode_change;
mod once;
mod owners;
mod records;
mod semaphore;
mod several;
mod shared;
mod timings;
pub mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Runs each case on every deployment: `contract! { case, case, ... }`. Cases after `queued:` are
/// about the order of processes that wait, which a Redlock does not keep, and about kept leases,
/// which it does not have. Cases after `native:` are about shared leases and semaphores, which neither a
/// Redlock nor Redisson's layout has.
macro_rules! contract {
    (native: $($case:ident),* $(,)?) => {
        $crate::contract::contract!(@on memory: $($case,)*);
        $crate::contract::contract!(@on redis: $($case,)*);
        $crate::contract::contract!(@on sentinel: $($case,)*);
        $crate::contract::contract!(@on cluster: $($case,)*);
    };
    ($($case:ident),* $(,)? $(; queued: $($queued:ident),* $(,)?)?) => {
        $crate::contract::contract!(@on memory: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on redis: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on redisson: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on sentinel: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on cluster: $($case,)* $($($queued,)*)?);
        $crate::contract::contract!(@on redlock_3: $($case,)*);
        $crate::contract::contract!(@on redlock_5: $($case,)*);
        $crate::contract::contract!(@on redlock_3_one_dead: $($case,)*);
        $crate::contract::contract!(@on redlock_3_one_hung: $($case,)*);
        $crate::contract::contract!(@on redlock_3_redisson: $($case,)*);
    };
    (@on $stage:ident: $($case:ident,)*) => {
        mod $stage {
            $(#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::stage::Stage::$stage()).await;
            })*
        }
    };
}

use contract;

/// Where the contract must hold.
const DEPLOYMENTS: [&str; 10] = [
    "memory",
    "redis",
    "redisson",
    "sentinel",
    "cluster",
    "redlock_3",
    "redlock_5",
    "redlock_3_one_dead",
    "redlock_3_one_hung",
    "redlock_3_redisson",
];

/// The cases about the order of processes that wait, which a Redlock does not keep, and about kept
/// leases, which it does not have.
const QUEUED: [&str; 31] = [
    "candidates_are_listed_in_order",
    "a_leader_may_choose_its_successor",
    "a_successor_that_is_gone_is_passed_over",
    "waiters_of_several_processes_take_turns",
    "a_dead_waiter_does_not_hold_up_the_others",
    "a_dead_waiter_costs_no_more_than_its_lease_would",
    "the_dead_are_passed_over_in_one_step",
    "a_release_that_only_the_dead_wait_for_frees_the_lock",
    "a_waiter_is_not_passed_over_in_its_first_moments",
    "a_waiter_is_not_passed_over_however_long_it_waits",
    "a_waiter_that_has_lost_its_place_takes_another",
    "a_waiter_that_tells_nothing_counts_as_living",
    "a_kept_lock_is_acquired_again_with_a_greater_fence",
    "another_client_that_waits_gets_a_kept_lock",
    "another_client_that_tries_gets_a_kept_lock",
    "another_client_that_tries_once_gets_a_kept_lock",
    "who_asks_while_it_is_held_gets_it_at_the_release",
    "clients_that_keep_exclude_each_other_and_fences_grow",
    "a_kept_lock_is_let_go_when_its_time_is_over",
    "a_lock_goes_to_the_store_again_when_its_time_is_over",
    "a_shutdown_releases_what_is_kept",
    "a_client_that_is_dropped_releases_what_is_kept",
    "a_kept_lease_that_was_deleted_is_not_used",
    "an_owner_may_re_enter_a_kept_lock",
    "an_acquire_that_is_dropped_keeps_the_lock",
    "only_the_same_wish_is_given_a_kept_lock",
    "a_lease_without_renewal_is_not_kept",
    "a_lease_that_others_wait_for_is_not_kept",
    "a_detached_lease_is_not_kept",
    "max_hold_counts_anew_for_each_use",
    "listings_tell_what_is_kept",
];

/// The parts that are about shared leases, semaphores, fair locks, runs of schedules and latches.
const SHARED: [&str; 6] = [
    "shared",
    "mode_change",
    "semaphore",
    "fair",
    "once",
    "latch",
];

/// Whether the leases of a deployment cannot be shared, and it has no semaphores, fair locks and runs.
fn without_shared(deployment: &str) -> bool {
    deployment.starts_with("redlock") || deployment == "redisson"
}

/// Asks this very program for its tests, so that a combination that is missing is noticed.
#[test]
fn every_case_runs_on_every_deployment() {
    let program = std::env::current_exe().unwrap();
    let listed = Command::new(program).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut cases: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for line in listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
    {
        if let ["contract", part, deployment, case] = line.split("::").collect::<Vec<_>>()[..] {
            cases.entry((part, case)).or_default().insert(deployment);
        }
    }
    assert!(cases.len() > 80, "only {} cases are listed", cases.len());
    for ((part, case), on) in cases {
        let wanted = DEPLOYMENTS
            .into_iter()
            .filter(|deployment| !QUEUED.contains(&case) || !deployment.starts_with("redlock"))
            .filter(|deployment| !SHARED.contains(&part) || !without_shared(deployment));
        let wanted: BTreeSet<&str> = wanted.collect();
        assert_eq!(on, wanted, "{part}::{case}");
    }
}
