//! `tenure elect`: run a command while this process leads.

mod who_leads;

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgAction, ValueEnum};
use tenure::{Election, ErrorKind, Leadership, Locks, Mode, Released};
use tenure_view::holders::printable;
use tenure_view::output::complain;
use tenure_view::time;

use super::run::held_locks::HeldLocks;
use super::run::options::{self, OnLost, Plan, Talk, WhenBusy};
use super::run::running::Finished;
use super::run::signals::{self, Signals};
use super::run::{tree, wrapper};
use crate::exit::{Exit, Failed};
use crate::lock_name;
use crate::runtime::block_on;
use crate::server::{Server, ServerArgs};
use crate::user;

const TTL_DEFAULT: Duration = Duration::from_secs(15);
/// How long another candidate has the chance to lead before a command is restarted here.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  tenure elect scheduler -- ./scheduler                    one scheduler, on any number of machines
  tenure elect --value 10.0.0.7:8080 api -- ./serve        `tenure leader api` prints the address
  tenure elect --restart failure worker -- ./worker        if it fails, let another machine try
  tenure elect --listen 127.0.0.1:4040 api -- ./serve      curl http://127.0.0.1:4040 tells who leads

The command:
  It runs while this process leads, in its own process group, supervised by a warden as for `tenure
  run`. When the leadership is lost, the command and all its descendants are killed before another
  candidate can lead; then this process is a candidate again, and runs the command again when it is
  elected again.

  Its environment has TENURE_NAME, TENURE_FENCE, TENURE_LEASE and TENURE_TTL_MS. TENURE_FENCE is the
  term: send it with every write, so that the receiver can reject an older one.

  If the command ends by itself, this process resigns and exits with the command's exit code, unless
  --restart says otherwise. Signals are forwarded as by `tenure run`; after INT, TERM or HUP nothing is
  restarted.

Who leads, over HTTP:
  With --listen it answers each GET with who leads, as `tenure leader --json` prints it, and `is_me`: whether it is this
  process. The status is 503 while that is unknown. There is no access control: listen on localhost.";

/// Run a command while this process leads
///
/// Waits until elected, runs the command, and kills it if the leadership is lost.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ElectArgs {
    /// What the leader says of itself, such as its address [default: the host name]
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,

    /// What to do when the command ends by itself
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Restart::Never)]
    restart: Restart,

    /// Tell over HTTP who leads
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// How long the leader's lease lasts without renewal [env: `TENURE_TTL`] [default: 15s]
    ///
    /// Nobody leads for this long if the leader's machine dies. With a longer one, the leader survives
    /// longer server outages.
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Time from TERM to KILL [default: 5s, or a quarter of the ttl]
    #[arg(short, long, value_name = "TIME", value_parser = time::parse)]
    kill_after: Option<Duration>,

    /// Do not report that the leadership was lost
    #[arg(short, long)]
    quiet: bool,

    /// Report campaigns, elections and resignations
    #[arg(short, long, conflicts_with = "quiet", action = ArgAction::SetTrue)]
    verbose: bool,

    /// Name of the election
    #[arg(value_name = "NAME", value_parser = lock_name::parse)]
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

/// What to do when the command ends by itself. In each case the leader resigns first, so that another
/// candidate gets its chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Restart {
    /// Exit with its exit code
    Never,
    /// Campaign again if its exit code is not 0
    Failure,
    /// Campaign again
    Always,
}

/// What becomes of this process after one time as the leader.
enum After {
    Campaign,
    End(Exit),
}

pub fn run(args: &ElectArgs) -> Result<Exit> {
    let plan = args.plan()?;
    let value = args.value.clone().unwrap_or_else(host_name);
    block_on(elect(args, &plan, &value))
}

impl ElectArgs {
    /// Checks everything that can be checked without a server.
    fn plan(&self) -> Result<Plan> {
        let program = options::program(&self.words, "elect")?;
        let server = self.server.resolve()?;
        options::refuse_memory(&server)?;
        let ttl = self.ttl(&server)?;
        let server = server
            .about("command", program.shown())
            .about("user", user::name());
        Ok(Plan {
            names: vec![self.name.clone()],
            server,
            program,
            wait: None,
            when_busy: WhenBusy::End(Exit::NotAcquired),
            ttl,
            is_renewed: true,
            mode: Mode::Exclusive,
            limit: None,
            fair: false,
            at_least: Duration::ZERO,
            max_time: None,
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

    fn ttl(&self, server: &Server) -> Result<Duration> {
        if let Some(ttl) = self.ttl {
            return Ok(ttl);
        }
        Ok(server.ttl()?.unwrap_or(TTL_DEFAULT))
    }

    fn restarts(&self, exit: Exit) -> bool {
        match self.restart {
            Restart::Never => false,
            Restart::Failure => exit.code() != 0,
            Restart::Always => true,
        }
    }
}

async fn elect(args: &ElectArgs, plan: &Plan, value: &str) -> Result<Exit> {
    tree::adopt_orphans().context("cannot become a subreaper")?;
    let mut signals = Signals::catch()?;
    let locks = tokio::select! {
        signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
        locks = plan.server.connect_patiently_for_one() => locks?,
    };
    let exit = lead_again_and_again(args, plan, value, &locks, &mut signals).await;
    locks.shutdown(wrapper::SHUTDOWN_LIMIT).await;
    exit
}

async fn lead_again_and_again(
    args: &ElectArgs,
    plan: &Plan,
    value: &str,
    locks: &Locks,
    signals: &mut Signals,
) -> Result<Exit> {
    if let Some(address) = args.listen {
        who_leads::serve(address, locks, plan.first_name()).await?;
    }
    wrapper::refuse_own(plan, locks).await?;
    let election = locks.election(plan.first_name()).ttl(plan.ttl);
    loop {
        let leadership = tokio::select! {
            // Dropping it leaves the queue; `shutdown` waits for that.
            signal = signals.next_end() => return Ok(Exit::Signal(signals::number(signal))),
            leadership = campaign(plan, &election, value) => leadership?,
        };
        match lead(args, plan, leadership, signals).await? {
            After::End(exit) => return Ok(exit),
            After::Campaign => {}
        }
    }
}

/// Waits until elected, however long the server is away.
async fn campaign(
    plan: &Plan,
    election: &Election<Locks>,
    value: &str,
) -> Result<Leadership<Locks>> {
    let mut is_reported = plan.talk == Talk::Quiet;
    if plan.talk == Talk::Verbose {
        complain(format_args!(
            "tenure: campaigning for `{}`",
            plan.first_name()
        ));
    }
    loop {
        match election.campaign(value).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                if !std::mem::replace(&mut is_reported, true) {
                    let name = plan.first_name();
                    complain(format_args!(
                        "tenure: still campaigning for `{name}`: {error}"
                    ));
                }
            }
            elected => {
                return elected
                    .with_context(|| format!("cannot campaign for `{}`", plan.first_name()));
            }
        }
    }
}

/// Runs the command while this process leads.
async fn lead(
    args: &ElectArgs,
    plan: &Plan,
    leadership: Leadership<Locks>,
    signals: &mut Signals,
) -> Result<After> {
    if plan.talk == Talk::Verbose {
        let (value, term) = (printable(&leadership.value()), leadership.term());
        complain(format_args!(
            "tenure: `{value}` leads `{}` in term {term}",
            plan.first_name()
        ));
    }
    // Dropped by a panic, it would resign while the command is still alive.
    let leadership = ManuallyDrop::new(leadership);
    let held = HeldLocks::One(leadership.guard());
    let finished = wrapper::start_and_watch(plan, held, signals).await;
    let leadership = ManuallyDrop::into_inner(leadership);
    let was_lost = !leadership.is_valid();
    let resigned = leadership.resign().await;
    let mut finished = finished?;
    wrapper::reap(finished.reaped.take()).await;
    report(plan, &finished, &resigned, was_lost);
    if matches!(resigned, Ok(Released::AlreadyGone)) && !finished.knows_of_loss() {
        // Another may have led while the command still ran.
        return Ok(After::End(plan.lost_exit));
    }
    after(args, plan, &finished, signals).await
}

/// What to do now that no process of the command is left.
async fn after(
    args: &ElectArgs,
    plan: &Plan,
    finished: &Finished,
    signals: &mut Signals,
) -> Result<After> {
    let exit = finished.exit(plan);
    if finished.was_asked_to_end() {
        return Ok(After::End(exit));
    }
    if finished.knows_of_loss() {
        return Ok(After::Campaign);
    }
    if !finished.ended_by_itself() || !args.restarts(exit) {
        return Ok(After::End(exit));
    }
    tokio::select! {
        signal = signals.next_end() => Ok(After::End(Exit::Signal(signals::number(signal)))),
        () = tokio::time::sleep(RESTART_PAUSE) => Ok(After::Campaign),
    }
}

fn report(plan: &Plan, finished: &Finished, resigned: &tenure::Result<Released>, was_lost: bool) {
    let name = plan.first_name();
    match resigned {
        Err(error) => complain(format_args!("tenure: cannot resign from `{name}`: {error}")),
        Ok(Released::AlreadyGone) if !finished.knows_of_loss() => complain(format_args!(
            "tenure: lost `{name}` before the command finished: it did not lead to its end"
        )),
        Ok(_) if plan.talk == Talk::Verbose && !was_lost => {
            complain(format_args!("tenure: resigned from `{name}`"));
        }
        Ok(_) => {}
    }
}

fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name
    }
}

/// The address is in use, or not ours.
fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failed {
    Failed::usage(format!(
        "cannot listen on `{address}`: {error}; choose another address"
    ))
}
