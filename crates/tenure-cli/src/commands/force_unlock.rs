//! `tenure force-unlock`: release a lock that another client holds.

use std::io::{self, BufRead, IsTerminal};

use anyhow::Result;
use serde::Serialize;
use tenure::{LeaseId, Locks, Released};
use tenure_view::holders::{LockReport, look, printable};
use tenure_view::output::{complain, say, say_json};

use super::release::word_for;
use crate::exit::{Exit, Failed};
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  tenure show nightly                       its holder and the id of its lease
  tenure force-unlock nightly tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:30000

The holder is notified at once if it has held the lock for a second, otherwise at its next renewal.
It may need a moment to stop, so check fences wherever the lock protects data.";

/// Release a lock that another client holds
///
/// Needs the id of the lease, so that it cannot release a later holder: if the lock has another
/// lease by now, nothing changes and the exit code is 1.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ForceUnlockArgs {
    /// Name of the lock
    name: String,

    /// Id of its lease, from `tenure show` or `tenure ls --long`
    lease_id: String,

    /// Do not ask for confirmation
    #[arg(short, long)]
    force: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    lease_id: &'a str,
    released: &'static str,
}

/// The output when the lock has another lease or none.
#[derive(Serialize)]
struct Changed<'a> {
    error: &'static str,
    name: &'a str,
    lease_id: &'a str,
    now: &'a LockReport,
}

pub fn run(args: &ForceUnlockArgs) -> Result<Exit> {
    if !args.force && !io::stdin().is_terminal() {
        let message = "refusing to release a held lock without confirmation, and stdin is not a \
                       terminal: use --force";
        return Err(Failed::usage(message).into());
    }
    let server = args.server.resolve()?;
    runtime::block_on(async {
        let locks = server.connect().await?;
        let found = look(&locks, &args.name).await?;
        if found.lease_id.as_deref() != Some(&args.lease_id) {
            return args.report_changed(&found);
        }
        if found.left_ms.is_none() {
            let message = format!(
                "refusing to delete `{}`: it has no expiry, so it may not be a lock; if you are \
                 sure, run `redis-cli DEL`",
                printable(&args.name)
            );
            return Err(Failed::new(Exit::Broken, message).into());
        }
        if !args.force && !args.is_confirmed(&found)? {
            let message = "cancelled: the answer was not \"yes\"";
            return Err(Failed::new(Exit::Broken, message).into());
        }
        args.end(&locks).await
    })
}

impl ForceUnlockArgs {
    fn is_confirmed(&self, found: &LockReport) -> Result<bool> {
        complain(format_args!("Force-release `{}`?", printable(&self.name)));
        for line in found.lines() {
            complain(line);
        }
        if found.foreign {
            complain("  Another library holds it: its holder will not be notified.");
        }
        complain("Only \"yes\" will be accepted:");
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer.trim() == "yes")
    }

    async fn end(&self, locks: &Locks) -> Result<Exit> {
        let id = LeaseId::new(&self.lease_id);
        let released = locks.force_release(&self.name, &id).await?;
        if released == Released::AlreadyGone {
            return self.report_changed(&look(locks, &self.name).await?);
        }
        let name = printable(&self.name);
        if self.json {
            say_json(&Report {
                name: &self.name,
                lease_id: &self.lease_id,
                released: word_for(released),
            })?;
        } else if released == Released::WasHeld {
            say(format_args!("released `{name}`"))?;
        }
        if released == Released::WasHeld {
            return Ok(Exit::Done);
        }
        Err(Failed::new(
            Exit::Unavailable,
            format!(
                "unknown whether lock `{name}` was released: the server did not respond; check \
                 with `tenure show`"
            ),
        )
        .into())
    }

    /// The lock has another lease or none: nothing was changed.
    fn report_changed(&self, now: &LockReport) -> Result<Exit> {
        let error = if now.held {
            "lease_changed"
        } else {
            "not_held"
        };
        if self.json {
            say_json(&Changed {
                error,
                name: &self.name,
                lease_id: &self.lease_id,
                now,
            })?;
            return Ok(Exit::Broken);
        }
        let name = printable(&self.name);
        let message = match &now.lease_id {
            Some(lease) => format!(
                "lock `{name}` now has another lease, `{}` of {}: nothing was changed",
                printable(lease),
                now.who
            ),
            None => format!("lock `{name}` is not held: nothing to release"),
        };
        Err(Failed::new(Exit::Broken, message).into())
    }
}
