//! `tenure watch`: lock events as they happen.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tenure::{Advice, Locks};
use tenure_view::changes::{Change, Event, Known, look_again};
use tenure_view::holders::LockReport;
use tenure_view::output::{complain, say, say_json};
use tenure_view::time;

use super::interrupt;
use super::pattern::Pattern;
use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

/// Polling interval: as often as clients update their records.
const PACE: Duration = Duration::from_millis(500);
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  tenure watch 'order:*'
  tenure watch --json | jq -r 'select(.event == \"taken\") | .name'

Events: held (at the start), taken, handed_on (another holder or fence), waiting (how many), ended.
Polls twice a second, so it misses locks that are held for less than half a second.";

/// Print lock events as they happen, one per line
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct WatchArgs {
    /// Names to match: `*` matches anything, `?` one character [default: all]
    pattern: Option<String>,

    /// Print each event as one line of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &WatchArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    let pattern = Pattern::new(args.pattern.as_deref());
    runtime::block_on(async {
        let locks = server.connect().await?;
        if !args.json {
            complain(
                "tenure: polling twice a second; misses locks held for less than half a second",
            );
        }
        let exit = tokio::select! {
            ended = watch(&locks, &pattern, args.json) => ended,
            exit = interrupt::asked_to_end() => Ok(exit),
        };
        let _ = locks.shutdown(SHUTDOWN_LIMIT).await;
        exit
    })
}

/// Polls forever, even while the server is unavailable.
async fn watch(locks: &Locks, pattern: &Pattern, json: bool) -> Result<Exit> {
    let mut known = Known::default();
    let mut away_since: Option<Instant> = None;
    loop {
        let wanted = pattern.clone();
        let listed = locks.list(move |name| wanted.matches(name.as_str())).await;
        match listed {
            Ok(listing) => {
                if let Some(since) = away_since.take() {
                    let away = time::show(since.elapsed());
                    complain(format_args!("tenure: the server is back after {away}"));
                }
                let mut reports: Vec<_> = listing.locks.iter().map(LockReport::of_listed).collect();
                let again = look_again(locks, known.missing(&reports), &reports).await;
                reports.extend(again);
                let changes = known.update(reports).changes;
                // Only the page shows renewals.
                for change in changes.iter().filter(|it| it.event != Event::Renewed) {
                    print(change, json)?;
                }
            }
            Err(error) if error.advice() == Advice::Later => {
                if away_since.is_none() {
                    away_since = Some(Instant::now());
                    complain(format_args!("tenure: {error}; retrying"));
                }
            }
            Err(error) => return Err(error.into()),
        }
        if reader_is_gone() {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(PACE).await;
    }
}

fn print(change: &Change, json: bool) -> io::Result<()> {
    if json { say_json(change) } else { say(change) }
}

/// Whether the reader of our stdout is gone: a write would notice that only at the next event.
fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}
