//! `tenure ls`: live locks.

use std::io::{self, IsTerminal as _};

use anyhow::Result;
use serde::Serialize;
use tenure_view::holders::{LockReport, printable};
use tenure_view::output::{complain, say, say_json};

use super::pattern::Pattern;
use super::table::Table;
use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

/// What a listing omits.
const NOT_LISTED: &str = "not listed: locks held for less than half a second, and locks of other \
                          libraries without waiters; use `tenure show NAME` for those";

const EXAMPLES: &str = "\
Examples:
  tenure ls                 all locks
  tenure ls 'order:*'       locks with matching names; quote the pattern
  tenure ls --json | jq -r '.locks[] | select(.waiting > 0) | .name'

Reads the clients' records and checks each lock. Does not scan the database, so other keys cost
nothing.";

/// List live locks with their holders and waiters
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LsArgs {
    /// Names to match: `*` matches anything, `?` one character [default: all]
    pattern: Option<String>,

    /// Show lease ids too
    #[arg(short, long)]
    long: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Report {
    locks: Vec<LockReport>,
    /// How many leases clients hold beyond those that their records list.
    more_leases: u64,
}

pub fn run(args: &LsArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    let pattern = Pattern::new(args.pattern.as_deref());
    let listing = runtime::block_on(async {
        let locks = server.connect().await?;
        Ok(locks
            .list(move |name| pattern.matches(name.as_str()))
            .await?)
    })?;
    let report = Report {
        locks: listing.locks.iter().map(LockReport::of_listed).collect(),
        more_leases: listing.more_leases,
    };
    if args.json {
        say_json(&report)?;
        return Ok(Exit::Done);
    }
    if !report.locks.is_empty() {
        say(table(&report.locks, args.long))?;
    }
    // A script knows, and its log or its mail would repeat it.
    if io::stdout().is_terminal() {
        report_unlisted(&report);
    }
    Ok(Exit::Done)
}

fn table(locks: &[LockReport], long: bool) -> String {
    if long {
        let mut table = Table::new([
            "NAME", "HOLDER", "HELD", "LEFT", "WAITING", "FENCE", "LEASE",
        ]);
        for lock in locks {
            let [name, holder, held, left, waiting, fence] = cells(lock);
            let lease = printable(lock.lease_id.as_deref().unwrap_or("-"));
            table.push([name, holder, held, left, waiting, fence, lease]);
        }
        return table.to_string();
    }
    let mut table = Table::new(["NAME", "HOLDER", "HELD", "LEFT", "WAITING", "FENCE"]);
    for lock in locks {
        table.push(cells(lock));
    }
    table.to_string()
}

fn cells(lock: &LockReport) -> [String; 6] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        printable(&lock.name),
        if lock.kept {
            format!("{} (kept)", lock.who)
        } else {
            lock.who.clone()
        },
        or_dash(lock.held_for()),
        or_dash(lock.left()),
        lock.waiting.to_string(),
        or_dash(lock.fence.map(|fence| fence.to_string())),
    ]
}

fn report_unlisted(report: &Report) {
    let none = if report.locks.is_empty() {
        "no locks; "
    } else {
        ""
    };
    let more = match report.more_leases {
        0 => String::new(),
        more => format!(", and {more} more held by clients with over 1000 leases"),
    };
    complain(format_args!("tenure: {none}{NOT_LISTED}{more}"));
}
