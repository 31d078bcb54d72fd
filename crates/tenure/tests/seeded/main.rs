//! The seeded bugs: plants one after the other and runs what must catch it, as the table in
//! docs/testing.md says. A bug that survives fails the run.
//!
//! ```text
//! make seeded
//! make seeded BUG=naive-retry
//! make seeded CATCHERS=tests
//! ```
//!
//! Caught means that the named test itself failed, or the named checker of the fault run found
//! something. A crash, a time-out or a failure elsewhere is none: it could have other reasons.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test program: it fails by panicking, talks by printing and has no public interface"
)]

/// Runs test binaries, and reads what they say.
mod binaries;
/// The table in docs/testing.md.
mod table;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use binaries::{Binaries, Verdict};
use table::{Catcher, Row, Settings};

/// How many tests run at once. Most of their time they wait.
const WORKERS: usize = 4;

fn main() -> ExitCode {
    // Test runners ask for the tests in a binary; to them this one has none.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let mut rows = table::read();
    if let Some(only) = std::env::var("BUG").ok().filter(|bug| !bug.is_empty()) {
        rows.retain(|row| row.bug == only);
        assert!(!rows.is_empty(), "docs/testing.md lists no bug `{only}`");
    }
    if std::env::var("CATCHERS").is_ok_and(|catchers| catchers == "tests") {
        // Each fault run takes half a minute by itself.
        for row in &mut rows {
            row.catchers.retain(|catcher| catcher.test().is_some());
        }
    }
    let begun = Instant::now();
    let binaries = Binaries::build();
    println!("built in {:.0} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    if let Err(why) = is_green_without_bugs(&binaries, &rows) {
        println!("without any bug: {why}");
        return ExitCode::FAILURE;
    }
    let took = begun.elapsed().as_secs_f64();
    println!("green without bugs, in {took:.0} s\n");
    let survivors = plant_all(&binaries, &rows);
    let (count, took) = (rows.len(), begun.elapsed().as_secs_f64());
    println!("\n{count} bugs in {took:.0} s, {survivors} survived");
    if survivors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What fails anyway catches nothing.
fn is_green_without_bugs(binaries: &Binaries, rows: &[Row]) -> Result<(), String> {
    let catchers = || rows.iter().flat_map(|row| &row.catchers);
    let tests: BTreeSet<&str> = catchers().filter_map(Catcher::test).collect();
    binaries.pass(&tests)?;
    let settings: BTreeSet<&Settings> = catchers().filter_map(Catcher::settings).collect();
    let runs = settings
        .into_iter()
        .map(|settings| binaries.pass_faults(settings));
    runs.collect()
}

/// Plants each bug for each of its catchers; answers how many were not caught. Fault runs come last and
/// alone: each wants the whole machine.
fn plant_all(binaries: &Binaries, rows: &[Row]) -> usize {
    let catchers = rows
        .iter()
        .map(|row| row.catchers.iter().map(|it| (&*row.bug, it)));
    let pairs = catchers.flatten();
    let (tests, runs): (Vec<_>, Vec<_>) = pairs.partition(|(_, it)| it.test().is_some());
    let mut survivors = 0;
    for (pairs, workers) in [(tests, WORKERS), (runs, 1)] {
        let pairs = Mutex::new(pairs.into_iter());
        let work = || {
            let mut survivors = 0;
            loop {
                // A statement of its own: the others must not wait for what is done with it.
                let next = pairs.lock().unwrap().next();
                let Some((bug, catcher)) = next else {
                    return survivors;
                };
                survivors += usize::from(!is_caught(binaries, bug, catcher));
            }
        };
        survivors += std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let survivors = workers.into_iter().map(|worker| worker.join().unwrap());
            survivors.sum::<usize>()
        });
    }
    survivors
}

fn is_caught(binaries: &Binaries, bug: &str, catcher: &Catcher) -> bool {
    let begun = Instant::now();
    let verdict = binaries.run(catcher, bug);
    let seconds = begun.elapsed().as_secs_f64();
    let (word, why) = match &verdict {
        Verdict::Caught(why) => ("caught", why),
        Verdict::Survived(why) => ("SURVIVED", why),
        Verdict::Broken(why) => ("BROKEN", why),
    };
    println!("{bug:<28} {word:<8} {seconds:>5.1} s  {why}");
    matches!(verdict, Verdict::Caught(_))
}
