//! `tenure force-unlock`: end a lease that somebody else holds.

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
  tenure show nightly                       who holds it, with the id of the lease
  tenure force-unlock nightly tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:30000

Its holder learns of it at once if it has held the lock for a second, otherwise at its next
renewal. It may need a moment to stop: the next holder must show its fence.";

/// End a lease that somebody else holds
///
/// Needs the id of the lease, so that it cannot hit a later holder: if another lease is there by
/// now, nothing is touched and the exit code is 1.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ForceUnlockArgs {
    /// The lock
    name: String,

    /// The id of its lease, as `tenure show` and `tenure ls --long` print it
    lease_id: String,

    /// Do not ask
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

/// What is told when another lease is there, or none.
#[derive(Serialize)]
struct Changed<'a> {
    error: &'static str,
    name: &'a str,
    lease_id: &'a str,
    now: &'a LockReport,
}

pub fn run(args: &ForceUnlockArgs) -> Result<Exit> {
    if !args.force && !io::stdin().is_terminal() {
        let message = "refusing to end a lease that somebody holds without asking, and there is no \
                       terminal to ask on: use --force";
        return Err(Failed::usage(message).into());
    }
    let server = args.server.resolve()?;
    runtime::block_on(async {
        let locks = server.connect().await?;
        let found = look(&locks, &args.name).await?;
        if found.lease_id.as_deref() != Some(&args.lease_id) {
            return args.tell_changed(&found);
        }
        if found.left_ms.is_none() {
            let told = format!(
                "refusing to delete `{}`: it has no end, so it is perhaps not a lock; if you know \
                 that it is, type `redis-cli DEL`",
                printable(&args.name)
            );
            return Err(Failed::new(Exit::Broken, told).into());
        }
        if !args.force && !args.is_confirmed(&found)? {
            let told = "nothing was done: the answer was not \"yes\"";
            return Err(Failed::new(Exit::Broken, told).into());
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
            complain("  Another library took it: nobody will tell its holder.");
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
            return self.tell_changed(&look(locks, &self.name).await?);
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
                "cannot tell whether lock `{name}` was released: the server did not answer; look \
                 with `tenure show`"
            ),
        )
        .into())
    }

    /// Another lease is there, or none: nothing was touched.
    fn tell_changed(&self, now: &LockReport) -> Result<Exit> {
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
        let told = match &now.lease_id {
            Some(lease) => format!(
                "lock `{name}` has another lease by now, `{}` of {}: nothing was touched",
                printable(lease),
                now.who
            ),
            None => format!("lock `{name}` is not held: there is nothing to end"),
        };
        Err(Failed::new(Exit::Broken, told).into())
    }
}
