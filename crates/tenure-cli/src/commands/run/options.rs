//! The command line of `run`, and what it comes to.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgAction, ValueEnum};
use tenure_view::time;

use super::program::Program;
use crate::exit::{Exit, Failed};
use crate::meta;
use crate::server::{Server, ServerArgs};
use crate::user;

const TTL_DEFAULT: Duration = Duration::from_secs(30);
const KILL_AFTER_MAX: Duration = Duration::from_secs(5);
/// What a renewal and the warden may take, however short the ttl is.
const KILL_RESERVE: Duration = Duration::from_millis(40);

const EXAMPLES: &str = "\
Examples:
  tenure run nightly -- /opt/backup.sh            one at a time, on any number of machines
  tenure run -n deploy -- make deploy             now or not at all: exit code 75
  tenure run -w 10m migrate -- ./migrate          wait, but not for ever
  tenure run --skip --at-least 30s job -- ./job   for cron: once among all machines, no mail
  tenure run report -c 'fetch | count > out'      a line for the shell

The command:
  It gets TENURE_NAME, TENURE_FENCE, TENURE_LEASE and TENURE_TTL_MS in its environment; its input,
  output and error are those of `tenure`. Show the fence to what you write to: whoever has seen a
  greater one refuses.

  It runs in a process group of its own, with a warden beside it that needs no server. When the
  lock is lost, or `tenure` itself is stopped or killed, the command and all that it started, in
  whatever group or session, are ended before anybody else can have the lock. Only if `tenure` and
  its warden are both stopped or killed at once there is nobody left to do it.

  Processes that outlive the command are ended too, before the lock is let go: they would go on
  without it. --wait-all waits for them instead.

  HUP INT QUIT TERM USR1 USR2 CONT TSTP WINCH that `tenure` gets are passed on to the command's
  group. A second INT or TERM within two seconds kills it. On a terminal the keys reach the command
  itself: what ignores Ctrl-C there is ended by `kill`.

  All this is about leases that the server keeps. One that forgets them, as by a restart without
  persistence, can give the lock to another before anybody here knows: `tenure doctor` tells.";

/// Hold a lock while a command runs
///
/// Takes the lock, runs the command, lets the lock go, and ends with the command's exit code. The
/// letters are those of `flock`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct RunArgs {
    /// Do not wait: if somebody else has the lock, end with 75
    #[arg(short = 'n', long = "nonblock", visible_alias = "nb")]
    nonblock: bool,

    /// Wait for so long at most; 0 is -n [default: for as long as it takes]
    ///
    /// Seconds, with a fraction if need be, or with units: `.5`, `90`, `500ms`, `10m`, `1h30m`.
    /// So it is with all times here.
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME", value_parser = time::parse)]
    wait: Option<Duration>,

    /// The exit code if the lock was not acquired
    #[arg(
        short = 'E',
        long,
        value_name = "CODE",
        default_value_t = Exit::NotAcquired.code()
    )]
    conflict_exit_code: u8,

    /// If somebody else has the lock, say nothing and end with 0
    ///
    /// Does not wait, as with -n, unless -w says for how long.
    #[arg(long)]
    skip: bool,

    /// A line for `sh -c` instead of a command
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "words"
    )]
    line: Option<OsString>,

    /// How long the lease lasts without renewal [env: `TENURE_TTL`] [default: 30s]
    ///
    /// It is renewed at a third of it. Shorter: if this machine dies, others wait for less time.
    /// Longer: the command survives longer trouble with the server.
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Do not renew: the command must be done within the ttl, less --kill-after, or is ended
    #[arg(long)]
    no_renew: bool,

    /// Keep the lock for so long at least, also when the command is done sooner
    ///
    /// Nobody waits here for that: the lease is left behind, and ends by itself.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    at_least: Option<Duration>,

    /// End the command after this time: TERM, then KILL, exit code 124
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    max_time: Option<Duration>,

    /// How long the command has from TERM to KILL [default: 5s, or a quarter of the ttl]
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    kill_after: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Kill)]
    on_lost: OnLost,

    /// The exit code if the lock was lost and the command ended for that
    #[arg(long, value_name = "CODE", default_value_t = Exit::Lost.code())]
    lost_exit_code: u8,

    /// Wait for processes that outlive the command instead of ending them
    #[arg(long)]
    wait_all: bool,

    /// Give the terminal to the command [default: if stdin is a terminal]
    #[arg(long)]
    foreground: bool,

    /// Write something about this lease where holders are shown; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta::pair)]
    meta: Vec<(String, String)>,

    /// Wait for a random time up to this before asking
    ///
    /// So that a hundred machines whose cron says 3:00 do not come at once.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    jitter: Option<Duration>,

    /// Say nothing about waiting, or that the lock was not acquired
    #[arg(short, long)]
    quiet: bool,

    /// Say when the lock is waited for, acquired and let go
    #[arg(short, long, conflicts_with = "quiet", action = ArgAction::SetTrue)]
    verbose: bool,

    /// The lock's name
    #[arg(value_name = "NAME")]
    name: String,

    /// The command and its arguments, after `--` if you like
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

/// Letters that people know from `flock` and other tools, and that mean something else or nothing
/// here: refused with the reason instead of being misunderstood.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
struct FlockArgs {
    #[arg(short = 'x', long, visible_short_alias = 'e', hide = true)]
    exclusive: bool,
    #[arg(short, long, hide = true)]
    shared: bool,
    #[arg(short = 'j', long, value_name = "N", hide = true)]
    slots: Option<String>,
    #[arg(long, hide = true)]
    fair: bool,
    #[arg(long, hide = true)]
    unfair: bool,
    #[arg(short = 'F', long, hide = true)]
    no_fork: bool,
    #[arg(short = 'o', long, hide = true)]
    close: bool,
}

/// What happens to the command when its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// End it, before anybody else can have the lock
    Kill,
    /// Say so, and let it go on without the lock
    Warn,
}

/// What is to be done, checked.
pub struct Plan {
    pub name: String,
    pub server: Server,
    pub program: Program,
    /// How long to wait for the lock; zero asks once.
    pub wait: Option<Duration>,
    pub when_busy: WhenBusy,
    pub ttl: Duration,
    pub is_renewed: bool,
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

/// How to end if somebody else has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    Skip,
    End(Exit),
}

/// How much to say.
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

    /// Checks everything that can be checked before a server is asked.
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
            name: self.name.clone(),
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
            at_least: self.at_least()?,
            max_time: self.max_time,
            kill_after: self.kill_after(ttl)?,
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

    /// How long to wait. Who skips what is busy does not wait for it, unless told for how long.
    fn patience(&self) -> Option<Duration> {
        let at_once = self.nonblock || (self.skip && self.wait.is_none());
        if at_once {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }

    fn program(&self) -> Result<Program> {
        if let Some(line) = &self.line {
            return Ok(Program::of_shell(line)?);
        }
        let (first, rest) = match self.words.split_first() {
            Some((first, rest)) if !first.is_empty() => (first, rest),
            _ => return Err(Failed::usage("there is no command to run").into()),
        };
        if first.as_encoded_bytes().starts_with(b"-") {
            let option = first.display();
            return Err(Failed::usage(format!(
                "there is no option `{option}`: `tenure run --help` tells them all; those of the \
                 command come after it"
            ))
            .into());
        }
        Ok(Program::find(first, rest)?)
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
                "cannot keep a lock for `{}` at least: a lease lasts for 24 h at most",
                time::show(at_least)
            ))
            .into());
        }
        Ok(at_least)
    }

    /// The command is told before it is killed, and both before the lease ends; but not while the
    /// next renewal is still due, which comes after a third of the ttl.
    fn kill_after(&self, ttl: Duration) -> Result<Duration> {
        let kill_after = self.kill_after.unwrap_or(KILL_AFTER_MAX.min(ttl / 4));
        let longest = (ttl * 2 / 5).saturating_sub(KILL_RESERVE);
        if kill_after <= longest {
            return Ok(kill_after);
        }
        let (kill_after, ttl) = (time::show(kill_after), time::show(ttl));
        let longest = time::show(longest);
        let message = match self.kill_after {
            None => format!(
                "cannot run a command with a ttl of `{ttl}`: it could not be ended in good order \
                 before the lease ends; give a longer --ttl"
            ),
            Some(_) => format!(
                "cannot wait for `{kill_after}` between TERM and KILL: with a ttl of `{ttl}` it may \
                 be {longest} at most; give a longer --ttl"
            ),
        };
        Err(Failed::usage(message).into())
    }
}

impl FlockArgs {
    fn refuse(&self) -> Result<(), Failed> {
        let not_yet = |option: &str, what: &str| {
            Err(Failed::usage(format!(
                "{option} is not there yet: {what}; `tenure run` knows exclusive locks with one \
                 holder, in the order of arrival"
            )))
        };
        let never = |option: &str| {
            Err(Failed::usage(format!(
                "{option} cannot be: `tenure` stays beside the command, to renew the lease and to \
                 end the command if it is lost; leave it out"
            )))
        };
        match self {
            Self { shared: true, .. } => not_yet("-s/--shared", "shared locks are to come"),
            Self { slots: Some(_), .. } => not_yet("-j/--slots", "several holders are to come"),
            Self { fair: true, .. } => not_yet("--fair", "a strictly fair lock is to come"),
            Self { unfair: true, .. } => not_yet("--unfair", "unfair locks are to come"),
            Self { no_fork: true, .. } => never("-F/--no-fork"),
            Self { close: true, .. } => never("-o/--close"),
            // What happens anyway.
            Self { exclusive: _, .. } => Ok(()),
        }
    }
}

/// Such a lock is known to one process only.
fn refuse_memory(server: &Server) -> Result<(), Failed> {
    if server.urls().iter().any(|url| url.starts_with("memory:")) {
        return Err(Failed::config(
            "cannot run a command under a lock on `memory://`: it would exclude nobody, because it \
             is known inside one process only; give the URL of a server",
        ));
    }
    Ok(())
}
