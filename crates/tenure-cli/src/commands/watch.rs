//! `tenure watch`: what happens to locks, as it happens.

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

/// How often to look: as often as clients say something new of themselves.
const PACE: Duration = Duration::from_millis(500);
const FAREWELL: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  tenure watch 'order:*'
  tenure watch --json | jq -r 'select(.event == \"taken\") | .name'

Events: held (at the beginning), taken, handed_on (another holder, or another fence), waiting (how
many), ended. Looks twice a second: what is shorter than half a second is not seen.";

/// Print what happens to locks, one line for each event
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct WatchArgs {
    /// Which locks: `*` for anything, `?` for one character [default: all]
    pattern: Option<String>,

    /// Print each event as a line of JSON
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
                "tenure: looking twice a second: what is held for less than half a second is not seen",
            );
        }
        let exit = tokio::select! {
            ended = watch(&locks, &pattern, args.json) => ended,
            exit = interrupt::asked_to_end() => Ok(exit),
        };
        let _ = locks.shutdown(FAREWELL).await;
        exit
    })
}

/// Looks again and again. A server that is away is waited for.
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
                    complain(format_args!(
                        "tenure: the server answers again, after {away}"
                    ));
                }
                let mut reports: Vec<_> = listing.locks.iter().map(LockReport::of_listed).collect();
                let again = look_again(locks, known.missing(&reports), &reports).await;
                reports.extend(again);
                let changes = known.update(reports).changes;
                // Renewals are for those who look at bars.
                for change in changes.iter().filter(|it| it.event != Event::Renewed) {
                    print(change, json)?;
                }
            }
            Err(error) if error.advice() == Advice::Later => {
                if away_since.is_none() {
                    away_since = Some(Instant::now());
                    complain(format_args!("tenure: {error}; trying again"));
                }
            }
            Err(error) => return Err(error.into()),
        }
        if nobody_reads() {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(PACE).await;
    }
}

fn print(change: &Change, json: bool) -> io::Result<()> {
    if json { say_json(change) } else { say(change) }
}

/// Whether the reader of our stdout has gone, which writing alone would show at the next event only.
fn nobody_reads() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}
