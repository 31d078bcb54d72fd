//! Tenure's benchmarks: `make bench` at the repository's root.
//!
//! One server, one run, everybody in turn, medians, and the reference beside each figure.
//! `docs/benchmarks.md` says how to read the table.
#![allow(missing_docs, reason = "a program: nobody links to its items")]

mod allocations;
mod child;
mod clock;
mod contender;
mod contest;
mod floor;
mod machine;
mod many;
mod measures;
mod options;
mod ours;
mod peers;
mod pipe;
mod progress;
mod rounds;
mod scripts;
mod setting;
mod stats;
mod table;

use std::process::ExitCode;

use tenure_testkit::RedisServer;

use machine::Machine;
use options::Options;
use setting::Setting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, task, rest @ ..] = arguments.as_slice()
        && first == child::CHILD
    {
        measures::run_child(task, rest);
        return ExitCode::SUCCESS;
    }
    match Options::parse(&arguments) {
        Ok(options) => {
            run(&options);
            ExitCode::SUCCESS
        }
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(64)
        }
    }
}

fn run(options: &Options) {
    let setting = Setting {
        server: RedisServer::start(),
        rounds: options.rounds,
    };
    let machine = Machine::watch(&setting.server);
    let selected = measures::ALL.iter();
    let selected = selected.filter(|measure| options.selects(measure));
    let rows: Vec<_> = selected
        .flat_map(|measure| (measure.run)(&setting))
        .collect();
    let rounds = options.rounds;
    let about = machine.describe(&setting.server);
    print!("{}\n{about} Rounds: {rounds}.\n", table::render(&rows));
}
