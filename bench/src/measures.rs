//! The measures, one file each: what is run, what is counted, what is aimed at.

mod cluster;
mod command;
mod failover;
mod gate;
mod http;
mod kept;
mod leases;
mod ledger;
mod living;
mod names;
mod pairs;
mod processes;
mod redlock;
mod sale;
mod server_cpu;
mod several;
mod turns;
mod waiters;
mod wake;

use crate::setting::Setting;
use crate::table::Row;

/// A measure and the name it is selected by.
pub struct Measure {
    pub name: &'static str,
    pub run: fn(&Setting) -> Vec<Row>,
    /// Whether it runs only if it is selected, so that the others take at most ten minutes.
    pub is_extra: bool,
}

const fn measure(name: &'static str, run: fn(&Setting) -> Vec<Row>) -> Measure {
    Measure {
        name,
        run,
        is_extra: false,
    }
}

const fn extra(name: &'static str, run: fn(&Setting) -> Vec<Row>) -> Measure {
    Measure {
        is_extra: true,
        ..measure(name, run)
    }
}

/// In the order of the table.
pub const ALL: &[Measure] = &[
    measure("pairs", pairs::measure),
    measure("kept", kept::measure),
    measure("server_cpu", server_cpu::measure),
    extra("several", several::measure),
    measure("turns", turns::measure),
    measure("processes", processes::measure),
    measure("wake", wake::measure),
    measure("names", names::measure),
    measure("leases", leases::measure),
    measure("waiters", waiters::measure),
    measure("waiters_memory", leases::waiters),
    extra("living", living::measure),
    measure("redlock", redlock::alone),
    measure("redlock_many", redlock::many),
    measure("redlock_crowd", redlock::crowd),
    extra("sentinel", failover::sentinel),
    measure("cluster", cluster::measure),
    extra("cluster_moves", failover::cluster),
    measure("gate", gate::measure),
    measure("hot", gate::hot),
    extra("ledger", ledger::measure),
    extra("sale", sale::end_to_end),
    extra("ways", sale::ways),
    measure("command", command::start),
    extra("command_ls", command::list),
    extra("command_waiters", command::wait),
    measure("http_orders", http::orders),
    measure("http_locks", http::locks),
    extra("http_streams", http::streams),
];

/// What a child process does: see [`crate::child`].
pub fn run_child(task: &str, arguments: &[String]) {
    match task {
        "contest" => processes::child(arguments),
        "wake" => wake::child(arguments),
        "leases" => leases::child(arguments),
        "http" => http::child(),
        "waiters" => leases::waiting_child(arguments),
        unknown => panic!("no child does `{unknown}`"),
    }
}
