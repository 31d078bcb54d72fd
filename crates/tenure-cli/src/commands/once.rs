//! `tenure once`: of all processes whose timer fires, one runs the command.

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ArgAction;
use tenure::{ErrorKind, LockName, Mode, Once, OnceState, Run, Start};
use tenure_view::output::complain;
use tenure_view::time;

use super::run::held_locks::HeldLocks;
use super::run::options::{self, OnLost, Plan, Talk, WhenBusy};
use super::run::running::Finished;
use super::run::signals::{self, Signals};
use super::run::{tree, wrapper};
use crate::exit::Exit;
use crate::runtime::block_on;
use crate::server::ServerArgs;
use crate::user;

const TTL_DEFAULT: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  tenure once backup --at \"$(date -u +%F)\" -- ./backup         once a day, on any number of machines
  tenure once hourly --at \"$(date -u +%FT%H)\" -- ./job         once an hour
  tenure once bill --at 2026-03 --remember 400d -- ./bill      once a month, never twice
  tenure once sync --at \"$(date -u +%F)\" --retry -- ./sync     again elsewhere if it failed

The fire time:
  It only identifies the run, and is compared with nothing but other fire times, for equality. So every
  machine must write the time for which the job was planned, in the same way. With `date` the clocks may
  differ by as much as the time between two runs; round to the interval, as above.

The command:
  It completes if its exit code is 0. A run that ends otherwise, because the command failed or the machine
  died, is not repeated, unless --retry is given where the next one starts.

  It runs in its own process group, supervised by a warden as for `tenure run`, and is killed before its
  lease ends. Its environment has TENURE_NAME (`NAME@T`), TENURE_FENCE, TENURE_LEASE and TENURE_TTL_MS.

Exit codes:
  Those of the command, if it ran here. Otherwise 0 if the run has completed or is in progress elsewhere,
  and 75 if an earlier run ended without completing, or if --wait gave up.";

/// Run a command once for each fire time, on one of many machines
///
/// For timers that fire on every machine of a fleet. Unlike a lock, it is remembered that the command was
/// run, so a machine whose timer is late does not run it again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct OnceArgs {
    /// Fire time: identifies the run, the same on every machine
    #[arg(long, value_name = "T")]
    at: String,

    /// Run the command although an earlier run for this fire time ended without completing
    #[arg(long)]
    retry: bool,

    /// For how long to remember the run [default: 7d]
    ///
    /// Longer than the command takes, and longer than a timer can be late.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    remember: Option<Duration>,

    /// Wait at most this long for a run in progress elsewhere, and report what came of it
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    wait: Option<Duration>,

    /// How long the lease lasts without renewal [env: `TENURE_TTL`] [default: 30s]
    ///
    /// Another machine can retry after this time if this one dies.
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Stop the command after this time: TERM, then KILL, exit code 124
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    max_time: Option<Duration>,

    /// Time from TERM to KILL [default: 5s, or a quarter of the ttl]
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    kill_after: Option<Duration>,

    /// Do not report that an earlier run ended without completing
    #[arg(short, long)]
    quiet: bool,

    /// Report what is known of other runs, and what is recorded
    #[arg(short, long, conflicts_with = "quiet", action = ArgAction::SetTrue)]
    verbose: bool,

    /// Name of the schedule
    #[arg(value_name = "NAME")]
    name: String,

    /// The command and its arguments; `--` before it is optional
    #[arg(
        value_name = "CMD",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    words: Vec<OsString>,

    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &OnceArgs) -> Result<Exit> {
    let mut plan = args.plan()?;
    block_on(once(args, &mut plan))
}

impl OnceArgs {
    /// Checks everything that can be checked without a server.
    fn plan(&self) -> Result<Plan> {
        let program = options::program(&self.words, "once")?;
        let server = self.server.resolve()?;
        options::refuse_memory(&server)?;
        let ttl = match self.ttl {
            Some(ttl) => ttl,
            None => server.ttl()?.unwrap_or(TTL_DEFAULT),
        };
        let server = server
            .about("command", program.shown())
            .about("user", user::name());
        Ok(Plan {
            names: vec![self.name.clone()],
            server,
            program,
            wait: Some(self.wait.unwrap_or_default()),
            when_busy: WhenBusy::End(Exit::NotAcquired),
            ttl,
            is_renewed: true,
            mode: Mode::Exclusive,
            limit: None,
            fair: false,
            at_least: Duration::ZERO,
            max_time: self.max_time,
            kill_after: options::kill_after(self.kill_after, ttl)?,
            on_lost: OnLost::Kill,
            lost_exit: Exit::Lost,
            wait_all: false,
            foreground: false,
            meta: Vec::new(),
            jitter: Duration::ZERO,
            talk: match (self.quiet, self.verbose) {
                (true, _) => Talk::Quiet,
                (_, true) => Talk::Verbose,
                _ => Talk::Usual,
            },
        })
    }
}

async fn once(args: &OnceArgs, plan: &mut Plan) -> Result<Exit> {
    tree::adopt_orphans().context("cannot become a subreaper")?;
    let mut signals = Signals::catch()?;
    let tenure = tokio::select! {
        signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
        tenure = plan.server.connect_alone_for_one("`tenure once`") => tenure?,
    };
    let once = tenure.once(&args.name, &args.at).retry(args.retry);
    let once = once.ttl(plan.ttl);
    let once = match args.remember {
        Some(remember) => once.remember(remember),
        None => once,
    };
    let name = once.lock_name()?;
    plan.names = vec![name.to_string()];
    wrapper::refuse_own(plan, tenure.as_locks()).await?;
    // Dropping it leaves the queue; `shutdown` waits for that.
    let exit = tokio::select! {
        signal = signals.next_end() => Ok(Begun::Signal(signals::number(signal))),
        start = begin(plan, &once) => start,
    };
    let exit = match exit {
        Ok(Begun::Signal(signal)) => Ok(Exit::Signal(signal)),
        Ok(Begun::Start(Start::Here(run))) => work(plan, run, &mut signals).await,
        Ok(Begun::Start(Start::Elsewhere(state))) => Ok(not_here(plan, &name, &state)),
        Err(error) => Err(error.context(format!("cannot begin a run of `{name}`"))),
    };
    tenure.shutdown(wrapper::SHUTDOWN_LIMIT).await;
    exit
}

/// What came of the wish to begin.
enum Begun {
    Start(Start),
    Signal(u8),
}

/// Begins a run, or waits for the one in progress as long as planned. A caller that is willing to wait also
/// waits for the server to recover.
async fn begin(plan: &Plan, once: &Once) -> Result<Begun> {
    let limit = plan.wait.unwrap_or_default();
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let start = if left.is_zero() {
            once.try_begin().await
        } else {
            once.clone().wait(left).begin().await
        };
        match start {
            Ok(start) => return Ok(Begun::Start(start)),
            Err(error) if error.kind() == ErrorKind::Busy => {}
            Err(error) if error.kind() == ErrorKind::Unavailable && begun.elapsed() < limit => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs the command, and records that it has completed if it succeeds.
async fn work(plan: &Plan, run: Run, signals: &mut Signals) -> Result<Exit> {
    if plan.talk == Talk::Verbose {
        let (name, fence) = (run.name(), run.fence());
        complain(format_args!("tenure: run `{name}` begins (fence {fence})"));
    }
    // A lock that another process has just passed on is first held for two seconds at most. If this fails,
    // the command is ended like any that has lost its lock.
    let _ = run.ensure(plan.ttl / 2).await;
    // Dropped by a panic, it would end the run while the command is still alive.
    let run = ManuallyDrop::new(run);
    let finished = wrapper::start_and_watch(plan, HeldLocks::One(run.guard()), signals).await;
    let run = ManuallyDrop::into_inner(run);
    let finished = finished?;
    let exit = finished.exit(plan);
    if exit.code() == 0 {
        return Ok(complete(plan, run, &finished).await);
    }
    if plan.talk == Talk::Verbose {
        let name = run.name();
        complain(format_args!(
            "tenure: run `{name}` ended without completing; another one needs --retry"
        ));
    }
    Ok(exit)
}

async fn complete(plan: &Plan, run: Run, finished: &Finished) -> Exit {
    let name = run.name().clone();
    match run.complete().await {
        Ok(()) => {
            if plan.talk == Talk::Verbose {
                complain(format_args!("tenure: run `{name}` has completed"));
            }
            finished.exit(plan)
        }
        Err(error) => {
            complain(format_args!("tenure: {error}"));
            Exit::of(&error.into())
        }
    }
}

fn not_here(plan: &Plan, name: &LockName, state: &OnceState) -> Exit {
    let has_waited = plan.wait.is_some_and(|limit| !limit.is_zero());
    let exit = match state {
        OnceState::Completed(_) => Exit::Done,
        OnceState::Running(_) if !has_waited => Exit::Done,
        _ => Exit::NotAcquired,
    };
    let is_told = match plan.talk {
        Talk::Quiet => false,
        Talk::Usual => exit != Exit::Done,
        Talk::Verbose => true,
    };
    if is_told {
        let remedy = match state {
            OnceState::Ended(_) => "; --retry repeats it",
            OnceState::Running(_) if has_waited => "; gave up waiting",
            _ => "",
        };
        complain(format_args!(
            "tenure: not running `{name}`: {state}{remedy}"
        ));
    }
    exit
}
