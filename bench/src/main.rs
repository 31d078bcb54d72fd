//! Tenure's benchmarks: `make bench` at the repository's root.
//!
//! One server, one run, everybody in turn, medians, and the reference beside each figure.
//! `docs/benchmarks.md` says how to read the table.
#![allow(missing_docs, reason = "a program: nobody links to its items")]

mod contender;
mod floor;
mod measures;
mod options;
mod ours;
mod peers;
mod rounds;
mod setting;
mod stats;
mod table;

use std::process::ExitCode;

use tenure_testkit::RedisServer;

use options::Options;
use setting::Setting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
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
    let selected = measures::ALL.iter();
    let selected = selected.filter(|measure| options.selects(measure.name));
    let rows: Vec<_> = selected
        .flat_map(|measure| (measure.run)(&setting))
        .collect();
    print!("{}", table::render(&rows));
}
