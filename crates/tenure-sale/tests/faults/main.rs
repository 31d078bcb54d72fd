//! The fault run of the sale: instances sell and consumers bring orders into the ledger while everything
//! around them breaks, and afterwards the ten invariants must hold.
//!
//! ```text
//! cargo test -p tenure-sale --test faults
//! DEPLOYMENT=sentinel SEED=42 SECONDS=120 TENURE_FAULTS_KEEP=/tmp/deeds cargo test -p tenure-sale --features failpoints --test faults
//! ```
//!
//! Four processes are instances of a shop, three are consumers; all are this program again. One Redis,
//! one that Sentinel looks after, or a cluster is their gate, one PostgreSQL their ledger. `items.rs` says what is
//! sold and to whom, `nemesis.rs` what breaks, `allowance.rs` what may not hold then. The judge is
//! `tenure_testkit::sale`, which knows nothing of the engine. With `TENURE_SALE_BUG=…` a bug is planted in the
//! engine, and the run succeeds if it is caught.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test program: it fails by panicking, talks by printing and has no public interface"
)]

/// Whether every item sells again soon after everything was healed.
mod again;
/// What may not hold on which deployment.
mod allowance;
/// What ledger and gate say when all is quiet.
mod books;
/// An item that is broken all the time.
mod broken;
/// A process of the sale: an instance or a consumer.
mod client;
/// What the gate of a run lives on.
mod deployment;
/// All processes of the sale.
mod fleet;
/// What is sold, and to whom.
mod items;
/// Which faults are injected, when, and whether they took effect.
mod nemesis;
/// How long to wait on a busy machine.
mod patience;
/// What a run consists of.
mod plan;
/// What is printed at the end.
mod report;
/// One sale from its opening to the verdict.
mod run;
/// Coming to rest: unknown answers are asked again, the queue drains, every order is looked at.
mod settle;
/// The servers of a run.
mod stage;

use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    if let Some(order) = client::Order::from_env() {
        client::run(&order);
        return ExitCode::SUCCESS;
    }
    // Test runners ask for the tests in a binary; to them this one has none.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    allowance::assert_documented();
    let plan = Plan::from_env();
    let mut green = true;
    let mut failures = String::new();
    for deployment in plan.deployments() {
        let report = run::run(&plan, deployment);
        print!("{report}");
        failures.push_str(&report.failures());
        green &= match plan.bug() {
            None => report.is_green(),
            Some(bug) => {
                let caught = !report.breaches.is_empty();
                println!(
                    "bug `{bug}`: {}",
                    if caught { "caught" } else { "not caught" }
                );
                caught
            }
        };
    }
    if green {
        return ExitCode::SUCCESS;
    }
    // Once more: CI shows only the end of its log, and that may be another deployment's report.
    print!("\n{failures}");
    ExitCode::FAILURE
}
