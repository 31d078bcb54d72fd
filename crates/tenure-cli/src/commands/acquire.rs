//! `tenure acquire`: acquire a lock, print its lease and exit.

mod keeper;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tenure::{ErrorKind, Lease, Lock, Locks, Moment, Unordered};
use tenure_view::holders::{ClientReport, LockReport, printable};
use tenure_view::output::{say, say_json};
use tenure_view::time;
use tenure_view::time::{millis, moment};

use self::keeper::Process;
use super::interrupt;
use crate::exit::{Exit, Failed};
use crate::lock_name;
use crate::meta;
use crate::runtime;
use crate::server::{Server, ServerArgs};
use crate::user;

/// The default ttl. On several servers no lease may last longer than the second one.
const TTL_DEFAULT: Duration = Duration::from_mins(1);
const TTL_DEFAULT_OF_SEVERAL: Duration = Duration::from_secs(30);
/// How long to wait for requests in progress at the end.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(900);

const EXAMPLES: &str = "\
Examples:
  lease=$(tenure acquire nightly --ttl 10m) || exit
  …
  tenure release --lease \"$lease\"

  eval \"$(tenure acquire nightly --export)\" || exit   sets TENURE_NAME, TENURE_LEASE, TENURE_FENCE
  tenure renew && tenure release                       read these

  lease=$(tenure acquire nightly --while $$)  renewed until this shell ends, then released

Without --while or `tenure renew` the lease expires after its ttl, and the script is not notified.
Prefer `tenure run`: it renews, and stops its command before the lease expires.";

/// Acquire a lock and print its lease, for scripts that release it later
///
/// The lease is one line of text for `tenure renew` and `tenure release`. It expires after its ttl
/// unless it is renewed.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AcquireArgs {
    /// Name of the lock
    #[arg(value_parser = lock_name::parse)]
    name: String,

    /// How long the lease lasts [default: 60s; 30s with several servers]
    #[arg(short, long, value_name = "DURATION", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Do not wait if the lock is held
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    nonblock: bool,

    /// Wait at most this long [default: no limit]
    #[arg(short, long, value_name = "DURATION", visible_alias = "timeout", value_parser = time::parse)]
    wait: Option<Duration>,

    /// Exit code if the lock was not acquired
    #[arg(short = 'E', long, value_name = "NUMBER", default_value_t = 75)]
    conflict_exit_code: u8,

    /// Metadata of this lease, shown by `tenure show`; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta::pair)]
    meta: Vec<(String, String)>,

    /// Renew in the background until this process exits, then release
    #[arg(long = "while", value_name = "PID")]
    keep_while: Option<i32>,

    /// Internal: the background process of `--while`, which reads the lease from stdin
    #[arg(long, hide = true, requires = "keep_while")]
    keep: bool,

    /// Print the result as JSON
    #[arg(long, conflicts_with = "export")]
    json: bool,

    /// Print shell code for `eval`
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
        // The output for `eval` must fail too: to a shell, empty output is a success.
        say(format_args!("(exit {})", exit.code()))?;
    }
    ended
}

fn take_or_keep(args: &AcquireArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    let ttl = args.ttl(&server)?;
    let process = args.keep_while.map(Process::open).transpose()?;
    let kept = args.keep.then(keeper::lease_of_stdin).transpose()?;
    runtime::block_on(async {
        let locks = server.connect_for_one().await?;
        let process = match (&kept, process) {
            (Some(lease), Some(process)) => return keeper::keep(&locks, lease, process).await,
            (_, process) => process,
        };
        let exit = tokio::select! {
            exit = args.take(&locks, ttl, process.as_ref()) => exit,
            exit = interrupt::asked_to_end() => Ok(exit),
        };
        // Leaves the queue. A lease that was printed stays.
        let _ = locks.shutdown(SHUTDOWN_LIMIT).await;
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
        let mut lock = self.lock(locks, ttl);
        if let Some(limit) = self.wait.or(self.nonblock.then_some(Duration::ZERO)) {
            lock = lock.wait(limit);
        }
        let begun = Instant::now();
        match lock.acquire().await {
            Ok(guard) => {
                let lease = guard.detach()?;
                if let Err(error) = self.hand_over(&lease, process, begun.elapsed()) {
                    // The caller never got it: it would block others until it expires.
                    let _ = locks.force_release(&self.name, lease.id()).await;
                    // Not the error itself: a closed pipe is a failure here.
                    let what = format!(
                        "cannot print the lease of `{}`, so it was released: {error:#}",
                        self.name
                    );
                    return Err(Failed::new(Exit::Internal, what).into());
                }
                Ok(Exit::Done)
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                self.report_busy(&lock, begun.elapsed()).await
            }
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self, locks: &Locks, ttl: Duration) -> Lock<Unordered> {
        let mut lock = locks.lock(&self.name).ttl(ttl);
        for (field, value) in caller().into_iter().chain(self.meta.clone()) {
            lock = lock.meta(field, value);
        }
        lock
    }

    /// Prints the lease. From then on it belongs to the script.
    fn hand_over(&self, lease: &Lease, process: Option<&Process>, waited: Duration) -> Result<()> {
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
                expires_at: moment(
                    lease
                        .deadline()
                        .unwrap_or_else(Moment::now)
                        .to_system_time(),
                ),
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

    /// Reports the holder.
    async fn report_busy(&self, lock: &Lock<Unordered>, waited: Duration) -> Result<Exit> {
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
            "other waiters were first".to_owned()
        };
        let after = if waited < Duration::from_millis(100) {
            String::new()
        } else {
            format!("; gave up after {}", time::show(waited))
        };
        Err(Failed::new(exit, format!("cannot acquire lock `{name}`: {by}{after}")).into())
    }
}

/// The default metadata of the lease: this process exits, and no client record lists the lease.
fn caller() -> BTreeMap<String, String> {
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

/// Quotes a text as one word for any shell.
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
