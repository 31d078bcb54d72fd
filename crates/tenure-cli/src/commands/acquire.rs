//! `tenure acquire`: take a lock and leave.

mod keeper;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde::Serialize;
use tenure::{ErrorKind, Lease, Lock, Locks};
use tenure_view::holders::{ClientReport, LockReport, printable};
use tenure_view::output::{say, say_json};
use tenure_view::time;
use tenure_view::time::{millis, moment};

use self::keeper::Process;
use super::interrupt;
use crate::exit::{Exit, Failed};
use crate::meta;
use crate::runtime;
use crate::server::{Server, ServerArgs};
use crate::user;

/// How long the lease lasts unless something else is said. On several servers no lease may last
/// longer than the second.
const TTL_DEFAULT: Duration = Duration::from_mins(1);
const TTL_DEFAULT_OF_SEVERAL: Duration = Duration::from_secs(30);
/// How long to wait for what is still under way when we are asked to end.
const FAREWELL: Duration = Duration::from_millis(900);

const EXAMPLES: &str = "\
Examples:
  lease=$(tenure acquire nightly --ttl 10m) || exit
  …
  tenure release --lease \"$lease\"

  eval \"$(tenure acquire nightly --export)\" || exit
                                              sets TENURE_NAME, TENURE_LEASE and TENURE_FENCE,
  tenure renew && tenure release              which these two read

  lease=$(tenure acquire nightly --while $$)  renewed until this shell ends, then released

Nobody else renews the lease: it ends after its ttl, whatever the script does then. Nor does anybody
tell the script that the lock is lost: `tenure run` does, and ends its command before the lease can.";

/// Take a lock and print its lease, for scripts that release it later
///
/// The lease is one line of text for `tenure renew` and `tenure release`. It ends after its ttl
/// unless it is renewed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AcquireArgs {
    /// The lock
    name: String,

    /// How long the lease lasts [default: 60s, on several servers 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Do not wait: now or not at all
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,

    /// Wait for at most this long [default: for as long as it takes]
    #[arg(short, long, value_name = "DURATION", visible_alias = "timeout", value_parser = time::parse)]
    wait: Option<Duration>,

    /// The exit code if the lock was not to be had
    #[arg(short = 'E', long, value_name = "NUMBER", default_value_t = 75)]
    conflict_exit_code: u8,

    /// Write something about this lease where `tenure show` shows it
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta::pair)]
    meta: Vec<(String, String)>,

    /// Renew it in the background until this process ends, then release it
    #[arg(long = "while", value_name = "PID")]
    keep_while: Option<i32>,

    /// What `--while` starts in the background: keep this lease
    #[arg(long, value_name = "LEASE", hide = true, requires = "keep_while")]
    keep: Option<Lease>,

    /// Print the result as JSON
    #[arg(long, conflicts_with = "export")]
    json: bool,

    /// Print lines for the shell's `eval`
    #[arg(long)]
    export: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Taken<'a> {
    name: &'a str,
    lease: String,
    lease_id: &'a str,
    fence: u64,
    ttl_ms: u64,
    expires_at: String,
    waited_ms: u64,
}

#[derive(Serialize)]
struct NotAcquired<'a> {
    error: &'static str,
    name: &'a str,
    holder: Option<ClientReport>,
    lease_id: Option<String>,
    left_ms: Option<u64>,
    meta: BTreeMap<String, String>,
    waited_ms: u64,
}

pub fn run(args: &AcquireArgs) -> Result<Exit> {
    let ended = take_or_keep(args);
    let exit = ended.as_ref().map_or_else(Exit::of, |exit| *exit);
    if args.export && exit != Exit::Done {
        // What is evaluated must fail too: of nothing, a shell makes a success.
        say(format_args!("(exit {})", exit.code()))?;
    }
    ended
}

fn take_or_keep(args: &AcquireArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    let ttl = args.ttl(&server)?;
    let process = args.keep_while.map(Process::open).transpose()?;
    runtime::block_on(async {
        let locks = server.connect_for_one().await?;
        let process = match (&args.keep, process) {
            (Some(lease), Some(process)) => return keeper::keep(&locks, lease, process).await,
            (_, process) => process,
        };
        let exit = tokio::select! {
            exit = args.take(&locks, ttl, process.as_ref()) => exit,
            exit = interrupt::asked_to_end() => Ok(exit),
        };
        // Gives up its place among those who wait. What was given away stays.
        let _ = locks.shutdown(FAREWELL).await;
        exit
    })
}

impl AcquireArgs {
    fn ttl(&self, server: &Server) -> Result<Duration> {
        let default = match server.urls() {
            [_] => TTL_DEFAULT,
            _ => TTL_DEFAULT_OF_SEVERAL,
        };
        Ok(match self.ttl {
            Some(ttl) => ttl,
            None => server.ttl()?.unwrap_or(default),
        })
    }

    async fn take(&self, locks: &Locks, ttl: Duration, process: Option<&Process>) -> Result<Exit> {
        let lock = self.lock(locks, ttl);
        let begun = Instant::now();
        let limit = self.wait.or(self.nonblock.then_some(Duration::ZERO));
        let acquired = match limit {
            None => lock.acquire().await,
            Some(limit) => lock.acquire_within(limit).await,
        };
        match acquired {
            Ok(guard) => {
                let lease = guard.detach()?;
                if let Err(error) = self.give_away(&lease, process, begun.elapsed()) {
                    // Nobody knows of it: it would stand in the way of others for nothing.
                    let _ = locks.force_release(&self.name, lease.id()).await;
                    // Not the error itself: a closed pipe is no success here.
                    let what = format!(
                        "cannot hand over the lease of `{}`, so it was released: {error:#}",
                        self.name
                    );
                    return Err(Failed::new(Exit::Internal, what).into());
                }
                Ok(Exit::Done)
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                self.tell_busy(&lock, begun.elapsed()).await
            }
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self, locks: &Locks, ttl: Duration) -> Lock {
        let mut lock = locks.lock(&self.name).ttl(ttl);
        for (field, value) in whoever_asks().into_iter().chain(self.meta.clone()) {
            lock = lock.meta(field, value);
        }
        lock
    }

    /// Prints the lease, after which it is the script's.
    fn give_away(&self, lease: &Lease, process: Option<&Process>, waited: Duration) -> Result<()> {
        if let Some(process) = process {
            keeper::start(lease, process)?;
        }
        Ok(self.print(lease, waited)?)
    }

    fn print(&self, lease: &Lease, waited: Duration) -> io::Result<()> {
        if self.json {
            return say_json(&Taken {
                name: lease.name().as_str(),
                lease: lease.to_string(),
                lease_id: lease.id().as_str(),
                fence: lease.fence().get(),
                ttl_ms: millis(lease.ttl()),
                expires_at: moment(SystemTime::now() + lease.ttl()),
                waited_ms: millis(waited),
            });
        }
        if self.export {
            return say(format_args!(
                "export TENURE_NAME={} TENURE_LEASE={} TENURE_FENCE={}",
                quoted(lease.name().as_str()),
                quoted(&lease.to_string()),
                lease.fence()
            ));
        }
        say(lease)
    }

    /// Says who has it, which a short wait alone does not find out.
    async fn tell_busy(&self, lock: &Lock, waited: Duration) -> Result<Exit> {
        let exit = Exit::Code(self.conflict_exit_code);
        let holder = lock.holder().await.unwrap_or(None);
        let report = LockReport::of_holder(&self.name, holder.as_ref(), &[]);
        if self.json {
            say_json(&NotAcquired {
                error: "not_acquired",
                name: &self.name,
                holder: report.holder,
                lease_id: report.lease_id,
                left_ms: report.left_ms,
                meta: report.meta,
                waited_ms: millis(waited),
            })?;
            return Ok(exit);
        }
        let name = printable(&self.name);
        let by = if report.held {
            format!("it is held by {}", report.who)
        } else {
            "others were first".to_owned()
        };
        let after = if waited < Duration::from_millis(100) {
            String::new()
        } else {
            format!("; gave up after {}", time::show(waited))
        };
        Err(Failed::new(exit, format!("cannot take lock `{name}`: {by}{after}")).into())
    }
}

/// What is written about the lease unless the caller says otherwise: this process will be gone, and
/// no client's record names the lease.
fn whoever_asks() -> BTreeMap<String, String> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let script = std::os::unix::process::parent_id();
    BTreeMap::from([
        ("host".to_owned(), host),
        ("pid".to_owned(), script.to_string()),
        ("user".to_owned(), user::name()),
    ])
}

/// One word for any shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
