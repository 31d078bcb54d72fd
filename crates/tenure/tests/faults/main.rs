//! The fault run: many client processes take and lose locks while everything around them breaks,
//! and afterwards nothing may have happened that was promised not to.
//!
//! ```text
//! cargo test -p tenure --test faults
//! LAYOUT=redisson SEED=42 SECONDS=300 TENURE_FAULTS_KEEP=/tmp/histories cargo test -p tenure --test faults
//! ```
//!
//! The run has phases for each layout, each with a server, clients and a history of its own:
//!
//! | phase | what breaks | must hold |
//! |---|---|---|
//! | `kept` | everything that keeps the server's data and clock | C1 C2 C3 C5 C6 |
//! | `loss` | the server's data too | C2 C3 C5; C1 and C6 are counted |
//! | `clock` | the server's clock too, but no data | C2 C3 C5; C1 and C6 are counted |
//!
//! C1 nobody believes to hold what another holds; C2 fences only grow; C3 the fenced resource loses
//! nothing; C5 after healing every lock can be had and nothing is left over; C6 a loss is noticed.
//! Besides, no client panics or hangs, and no call takes longer than its limit.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test program: it fails by panicking, talks by printing and has no public interface"
)]

/// A client process: what it does, and how it writes that down.
mod client;
/// All client processes, each behind a proxy of its own.
mod fleet;
/// What is looked at when all is healed.
mod judge;
/// What the run must know of the bytes in Redis.
mod layout;
/// What is broken, when, and whether anybody noticed.
mod nemesis;
/// The phases of a run and how its time is shared out.
mod plan;
/// What is printed at the end.
mod report;

use std::process::ExitCode;
use std::time::Instant;

use plan::Plan;
use report::Report;

fn main() -> ExitCode {
    if let Some(order) = client::Order::from_env() {
        client::run(&order);
        return ExitCode::SUCCESS;
    }
    // Test runners ask for the tests in a binary; to them this one has none.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let plan = Plan::from_env();
    let start = Instant::now();
    let outcomes = plan.run();
    let report = Report {
        seed: plan.seed,
        seconds: plan.seconds,
        layout: plan.layout(),
        took: start.elapsed(),
        outcomes,
    };
    print!("{report}");
    if report.is_green() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
