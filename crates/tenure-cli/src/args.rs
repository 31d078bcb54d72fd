//! The command line as a whole. Each command defines its own arguments.

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tenure_view::output;

use crate::commands::acquire::AcquireArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::demo::DemoArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::elect::ElectArgs;
use crate::commands::force_unlock::ForceUnlockArgs;
use crate::commands::is_locked::IsLockedArgs;
use crate::commands::leader::LeaderArgs;
use crate::commands::ls::LsArgs;
use crate::commands::man::ManArgs;
use crate::commands::once::OnceArgs;
use crate::commands::release::ReleaseArgs;
use crate::commands::renew::RenewArgs;
use crate::commands::run::{RunArgs, WardenArgs};
use crate::commands::sale::SaleArgs;
use crate::commands::serve::ServeArgs;
use crate::commands::show::ShowArgs;
use crate::commands::watch::WatchArgs;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure run nightly -- /opt/backup.sh     one at a time, on any number of machines
  tenure run -n deploy -- make deploy      do not wait: exit code 75 if it is locked
  tenure elect scheduler -- ./scheduler    run it on one machine, and on the next if that dies
  tenure ls                                locks, their holders and waiters
  tenure doctor                            is this Redis server fit for locks?
  tenure demo                              oversell without a lock, then sell correctly
  tenure serve                             locks and sales over HTTP, with a web page

Where the locks are:
  --url URL, TENURE_URL, `url` in a configuration file, REDIS_URL, redis://127.0.0.1:6379, in this
  order. Several URLs are independent servers: a lock is held on a majority of them.
  `demo` and `serve` need no server.

Exit codes:
  0    success; `run`, `elect`: the exit code of their command
  1    check failed: not locked, nobody leads, not fit, sold twice
  64   invalid command line
  69   the server is unreachable or unavailable
  70   internal error: please report it
  75   not acquired: another holder has the lock
  77   the server refused the user, the password or a command
  78   invalid URL or configuration file
  79   the lock was lost
  124  the command exceeded --max-time
  126  the command cannot be started
  127  the command cannot be found
  128+n  terminated by signal n";

const TRY_EXAMPLES: &str = "\
Examples:
  tenure try deploy -- make deploy         exit code 75 if another deploy is running
  tenure try --skip nightly -- ./backup    for cron: the second one does nothing, no mail

Everything else is as for `tenure run`.";

/// Distributed locks on Redis that never lie about who holds what.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_long_help = EXAMPLES, subcommand_required = true)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    /// Hold a lock while a command runs, without waiting for it: `run -n`
    #[command(after_long_help = TRY_EXAMPLES)]
    Try(RunArgs),
    Elect(ElectArgs),
    Once(OnceArgs),
    Leader(LeaderArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    IsLocked(IsLockedArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Watch(WatchArgs),
    ForceUnlock(ForceUnlockArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Sale(SaleArgs),
    Serve(ServeArgs),
    Demo(DemoArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    /// The supervisor process that `run` starts; internal.
    #[command(hide = true)]
    Warden(WardenArgs),
}

impl Args {
    /// Reads the command line of this process.
    pub fn read() -> Result<Self, clap::Error> {
        Self::try_parse()
    }
}

/// Prints help, the version, or what is wrong with the command line.
pub fn report(refused: &clap::Error) -> Exit {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed stdout is not an error here.
            let _ = refused.print();
            Exit::Done
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refused.print();
            Exit::Usage
        }
        _ => {
            let message = without_passwords(&refused.to_string());
            let message = message.strip_prefix("error: ").unwrap_or(&message);
            let lines = format!("tenure: {}", message.trim_end());
            lines.split('\n').for_each(output::complain);
            Exit::Usage
        }
    }
}

/// The message with masked URLs: it repeats the argument that was not understood.
fn without_passwords(message: &str) -> String {
    let mask = |word: &str| {
        if word.contains("://") {
            tenure::masked_url(word)
        } else {
            word.to_owned()
        }
    };
    let words: Vec<String> = message.split(' ').map(mask).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn a_refused_argument_is_repeated_without_its_password() {
        let refused = Args::try_parse_from(["tenure", "demo", "redis://:secret@h/"]).unwrap_err();
        let told = without_passwords(&refused.to_string());
        assert!(told.contains("***@h/"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
}
