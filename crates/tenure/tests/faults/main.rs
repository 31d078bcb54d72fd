//! The fault run: many client processes take and lose locks while everything around them breaks,
//! and afterwards nothing may have happened that was promised not to.
//!
//! ```text
//! cargo test -p tenure --test faults
//! DEPLOYMENT=redlock SEED=42 SECONDS=300 TENURE_FAULTS_KEEP=/tmp/histories cargo test -p tenure --test faults
//! ```
//!
//! The run has phases for each deployment and layout, each with servers, clients and a history of
//! its own. `phase.rs` says what breaks in each, `allowance.rs` what of the following may be
//! violated then; everything else must hold.
//!
//! C1 no two clients believe that they hold one lock; C2 fences only grow; C3 the fenced resource loses
//! nothing; C5 after healing every lock can be had and nothing is left over; C6 a loss is noticed.
//! Besides, no client panics or hangs, and no call takes longer than its limit.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test program: it fails by panicking, talks by printing and has no public interface"
)]

/// What may be violated on which deployment.
mod allowance;
/// A client process: what it does, and how it writes that down.
mod client;
/// What the locks of a run live on.
mod deployment;
/// All client processes, each behind proxies of its own.
mod fleet;
/// What is looked at when all is healed.
mod judge;
/// What the run must know of the bytes in Redis.
mod layout;
/// Which faults are injected, when, and whether they took effect.
mod nemesis;
/// One phase.
mod phase;
/// What breaks in which phase.
mod phases;
/// What a run consists of, and how its time is shared out.
mod plan;
/// What is printed at the end.
mod report;
/// The servers of a phase, however they stand together.
mod stage;
/// Whether the next waiter was served in time.
mod turn;

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
    allowance::assert_documented();
    let plan = Plan::from_env();
    let start = Instant::now();
    let outcomes = plan.run();
    let report = Report {
        plan,
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
