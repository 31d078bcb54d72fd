//! The command line of `run`, and the plan that results from it.

use std::ffi::OsString;
use std::slice;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgAction, ValueEnum};
use tenure::Mode;
use tenure_view::time;

use super::program::Program;
use crate::exit::{Exit, Failed};
use crate::lock_name;
use crate::meta;
use crate::server::{Server, ServerArgs};
use crate::user;

const TTL_DEFAULT: Duration = Duration::from_secs(30);
const KILL_AFTER_MAX: Duration = Duration::from_secs(5);
/// Time for a renewal and the warden, however short the ttl is.
const KILL_RESERVE: Duration = Duration::from_millis(40);

const EXAMPLES: &str = "\
Examples:
  tenure run nightly -- /opt/backup.sh            one at a time, on any number of machines
  tenure run -n deploy -- make deploy             do not wait: exit code 75 if it is locked
  tenure run -w 10m migrate -- ./migrate          wait, but not forever
  tenure run --skip --at-least 30s job -- ./job   for cron: on one machine, no mail
  tenure run -s data -- ./report                  any number of readers, but no writer at once
  tenure run report -c 'fetch | count > out'      a shell command
  tenure run from --also to -- ./transfer         two locks, or none
  tenure run -j 4 encode -- ./encode              at most four at once, each with a number

The command:
  Its environment has TENURE_NAME, TENURE_FENCE, TENURE_LEASE and TENURE_TTL_MS, but no
  TENURE_PASSWORD; it inherits stdin, stdout and stderr. Send the fence with every write, so that the
  receiver can reject an older one.
  The locks of --also have TENURE_NAME_2, TENURE_FENCE_2, TENURE_LEASE_2, then _3 and so on, in their
  order on the command line. With -j, TENURE_SLOT is a number from 0 to N-1 that no other command
  has at the same time, for example to choose a GPU or a port.

  It runs in its own process group, supervised by a second process, the warden, that needs no
  server. When the lock is lost, or `tenure` itself is stopped or killed, the command and all its
  descendants, in any group or session, are killed before another client can acquire the lock. The
  command survives only if `tenure` and its warden are stopped or killed at the same moment.

  Descendants that outlive the command are stopped too before the lock is released. --wait-all waits
  for them instead.

  HUP INT QUIT TERM USR1 USR2 CONT TSTP and WINCH are forwarded to the command's group. A second INT
  or TERM within two seconds kills it. On a terminal the keys reach the command directly.

  A server that loses its data, for example by a restart without persistence, can grant the lock
  again before `tenure` notices: check yours with `tenure doctor`.";

/// Hold a lock while a command runs
///
/// Acquires the lock, runs the command, releases the lock and exits with the command's exit code.
/// The short options are those of `flock`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct RunArgs {
    /// Do not wait: exit with 75 if the lock is held
    #[arg(short = 'n', long = "nonblock", visible_alias = "nb")]
    nonblock: bool,

    /// Wait at most this long; 0 is -n [default: no limit]
    ///
    /// Durations are seconds, or have units: `.5`, `90`, `500ms`, `10m`, `1h30m`.
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME", value_parser = time::parse)]
    wait: Option<Duration>,

    /// Exit code if the lock was not acquired
    #[arg(
        short = 'E',
        long,
        value_name = "CODE",
        default_value_t = Exit::NotAcquired.code()
    )]
    conflict_exit_code: u8,

    /// If the lock is held, print nothing and exit with 0
    ///
    /// Does not wait, as with -n, unless -w is given.
    #[arg(long)]
    skip: bool,

    /// Hold this lock as well: all of them or none; may be repeated
    ///
    /// Commands that name the same locks in different orders do not block each other.
    #[arg(long, value_name = "NAME", value_parser = lock_name::parse)]
    also: Vec<String>,

    /// Run this with `sh -c` instead of a command
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "words"
    )]
    line: Option<OsString>,

    /// How long the lease lasts without renewal [env: `TENURE_TTL`] [default: 30s]
    ///
    /// Renewed after a third of it. With a shorter one, others wait less if this machine dies. With
    /// a longer one, the command survives longer server outages.
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Do not renew: the command must finish within the ttl minus --kill-after
    #[arg(long)]
    no_renew: bool,

    /// Keep the lock at least this long, even if the command finishes sooner
    ///
    /// `tenure` does not wait for that: it exits, and the lease expires by itself.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    at_least: Option<Duration>,

    /// Stop the command after this time: TERM, then KILL, exit code 124
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    max_time: Option<Duration>,

    /// Time from TERM to KILL [default: 5s, or a quarter of the ttl]
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    kill_after: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Kill)]
    on_lost: OnLost,

    /// Share the lock with other readers (-s): any number of them run at once, but none beside a
    /// command that holds the lock exclusively
    #[arg(short, long, conflicts_with = "meta")]
    shared: bool,

    /// Let at most N of these commands run at once, instead of one
    ///
    /// Each has a slot of its own, whose number is in `TENURE_SLOT`. All of them must use the same N:
    /// one that uses another ends with exit code 64.
    #[arg(
        short = 'j',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(tenure::PERMITS_MAX)),
        conflicts_with_all = ["shared", "also", "meta", "at_least"]
    )]
    slots: Option<u32>,

    /// Serve those who wait strictly in order of arrival, also after a holder has died
    ///
    /// All commands that use the lock should ask for it.
    #[arg(long, conflicts_with_all = ["shared", "slots", "also"])]
    fair: bool,

    /// Exit code if the command was stopped because the lock was lost
    #[arg(long, value_name = "CODE", default_value_t = Exit::Lost.code())]
    lost_exit_code: u8,

    /// Wait for processes that outlive the command instead of stopping them
    #[arg(long)]
    wait_all: bool,

    /// Give the terminal to the command [default: if stdin is a terminal]
    #[arg(long)]
    foreground: bool,

    /// Metadata of this lease, shown with its holder; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta::pair)]
    meta: Vec<(String, String)>,

    /// Sleep a random time up to this before acquiring
    ///
    /// Spreads the load of many machines with the same crontab.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    jitter: Option<Duration>,

    /// Do not report waiting or that the lock was not acquired
    #[arg(short, long)]
    quiet: bool,

    /// Report waiting, acquiring and releasing
    #[arg(short, long, conflicts_with = "quiet", action = ArgAction::SetTrue)]
    verbose: bool,

    /// Name of the lock
    #[arg(value_name = "NAME", value_parser = lock_name::parse)]
    name: String,

    /// The command and its arguments; `--` before it is optional
    #[arg(
        value_name = "CMD",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "line"
    )]
    words: Vec<OsString>,

    #[command(flatten)]
    flock: FlockArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// Options of `flock` and other tools that mean something else or nothing here: refused with a
/// reason.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
struct FlockArgs {
    #[arg(
        short = 'x',
        long,
        visible_short_alias = 'e',
        hide = true,
        conflicts_with_all = ["shared", "slots"]
    )]
    exclusive: bool,
    #[arg(long, hide = true)]
    unfair: bool,
    #[arg(short = 'F', long, hide = true)]
    no_fork: bool,
    #[arg(short = 'o', long, hide = true)]
    close: bool,
}

/// What to do with the command when its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// Stop it before another client can acquire the lock
    Kill,
    /// Print a warning and let it run without the lock
    Warn,
}

/// The checked options.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct Plan {
    /// The locks to hold: at least one.
    pub names: Vec<String>,
    pub server: Server,
    pub program: Program,
    /// How long to wait for the lock; zero asks once.
    pub wait: Option<Duration>,
    pub when_busy: WhenBusy,
    pub ttl: Duration,
    pub is_renewed: bool,
    pub mode: Mode,
    /// How many of these commands may run at once, if they get permits instead of locks.
    pub limit: Option<u32>,
    /// Whether waiters are served strictly in order.
    pub fair: bool,
    pub at_least: Duration,
    pub max_time: Option<Duration>,
    pub kill_after: Duration,
    pub on_lost: OnLost,
    pub lost_exit: Exit,
    pub wait_all: bool,
    pub foreground: bool,
    pub meta: Vec<(String, String)>,
    pub jitter: Duration,
    pub talk: Talk,
}

impl Plan {
    /// The first name.
    pub fn first_name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The names of the locks, as messages show them.
    pub fn shown(&self) -> String {
        let names = self.names.iter().map(|name| format!("`{name}`"));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// How to exit if the lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    Skip,
    End(Exit),
}

/// How much to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    Quiet,
    Usual,
    Verbose,
}

impl RunArgs {
    /// `try`: now or not at all.
    pub fn without_waiting(&self) -> Self {
        Self {
            nonblock: true,
            ..self.clone()
        }
    }

    /// Checks everything that can be checked without a server.
    pub fn plan(&self) -> Result<Plan> {
        self.flock.refuse()?;
        let program = self.program()?;
        let server = self.server.resolve()?;
        refuse_memory(&server)?;
        let ttl = self.ttl(&server)?;
        let server = server
            .about("command", program.shown())
            .about("user", user::name());
        Ok(Plan {
            names: [slice::from_ref(&self.name), &self.also].concat(),
            server,
            program,
            wait: self.patience(),
            when_busy: if self.skip {
                WhenBusy::Skip
            } else {
                WhenBusy::End(Exit::Code(self.conflict_exit_code))
            },
            ttl,
            is_renewed: !self.no_renew,
            mode: self.mode(),
            limit: self.slots,
            fair: self.fair,
            at_least: self.at_least()?,
            max_time: self.max_time,
            kill_after: kill_after(self.kill_after, ttl)?,
            on_lost: self.on_lost,
            lost_exit: Exit::Code(self.lost_exit_code),
            wait_all: self.wait_all,
            foreground: self.foreground,
            meta: self.meta.clone(),
            jitter: self.jitter.unwrap_or_default(),
            talk: match (self.quiet, self.verbose) {
                (true, _) => Talk::Quiet,
                (_, true) => Talk::Verbose,
                _ => Talk::Usual,
            },
        })
    }

    /// How long to wait. `--skip` does not wait unless `--wait` is given.
    fn patience(&self) -> Option<Duration> {
        let at_once = self.nonblock || (self.skip && self.wait.is_none());
        if at_once {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }

    fn mode(&self) -> Mode {
        match (self.slots, self.shared) {
            (Some(_), _) => Mode::Permit,
            (None, true) => Mode::Shared,
            (None, false) => Mode::Exclusive,
        }
    }

    fn program(&self) -> Result<Program> {
        if let Some(line) = &self.line {
            return Ok(Program::of_shell(line)?);
        }
        program(&self.words, "run")
    }

    fn ttl(&self, server: &Server) -> Result<Duration> {
        if let Some(ttl) = self.ttl {
            return Ok(ttl);
        }
        Ok(server.ttl()?.unwrap_or(TTL_DEFAULT))
    }

    fn at_least(&self) -> Result<Duration> {
        let at_least = self.at_least.unwrap_or_default();
        if at_least > tenure::TTL_MAX {
            return Err(Failed::usage(format!(
                "cannot keep a lock for `{}`: a lease lasts 24 h at most",
                time::show(at_least)
            ))
            .into());
        }
        Ok(at_least)
    }
}

impl FlockArgs {
    fn refuse(&self) -> Result<(), Failed> {
        let not_yet = |option: &str, what: &str| {
            Err(Failed::usage(format!(
                "{option} is not supported yet: {what}; `tenure run` serves in order of arrival"
            )))
        };
        let never = |option: &str| {
            Err(Failed::usage(format!(
                "{option} is not supported: `tenure` keeps running to renew the lease and to stop \
                 the command if it is lost; leave it out"
            )))
        };
        match self {
            Self { unfair: true, .. } => not_yet("--unfair", "unfair locks are planned"),
            Self { no_fork: true, .. } => never("-F/--no-fork"),
            Self { close: true, .. } => never("-o/--close"),
            // The default.
            Self { exclusive: _, .. } => Ok(()),
        }
    }
}

/// The time from TERM to KILL. Both happen before the lease expires, but not before the next renewal
/// is due, after a third of the ttl.
pub fn kill_after(given: Option<Duration>, ttl: Duration) -> Result<Duration> {
    let kill_after = given.unwrap_or(KILL_AFTER_MAX.min(ttl / 4));
    let longest = (ttl * 2 / 5).saturating_sub(KILL_RESERVE);
    if kill_after <= longest {
        return Ok(kill_after);
    }
    let (kill_after, ttl) = (time::show(kill_after), time::show(ttl));
    let longest = time::show(longest);
    let message = match given {
        None => format!(
            "the ttl of `{ttl}` is too short: the command could not be stopped before the lease \
             expires; use a longer --ttl"
        ),
        Some(_) => format!(
            "--kill-after `{kill_after}` is too long: with a ttl of `{ttl}` the maximum is \
             {longest}; use a longer --ttl"
        ),
    };
    Err(Failed::usage(message).into())
}

/// The program that the words after the options name, for this command of ours.
pub fn program(words: &[OsString], ours: &str) -> Result<Program> {
    let (first, rest) = match words.split_first() {
        Some((first, rest)) if !first.is_empty() => (first, rest),
        _ => return Err(Failed::usage("no command given").into()),
    };
    if first.as_encoded_bytes().starts_with(b"-") {
        let option = first.display();
        return Err(Failed::usage(format!(
            "unknown option `{option}`: see `tenure {ours} --help`; options of the command go after \
             the command"
        ))
        .into());
    }
    Ok(Program::find(first, rest)?)
}

/// Such a lock exists in one process only.
pub fn refuse_memory(server: &Server) -> Result<(), Failed> {
    if server.urls().iter().any(|url| url.starts_with("memory:")) {
        return Err(Failed::config(
            "cannot run a command under a lock on `memory://`: such a lock exists in one process \
             only; use the URL of a server",
        ));
    }
    Ok(())
}
