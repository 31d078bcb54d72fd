//! Waiting for the lock, and reporting its holder.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use tenure::{ErrorKind, Holder, Lock, Locks, Unordered};
use tenure_view::holders::printable;
use tenure_view::output::complain;
use tenure_view::time;

use super::options::{Plan, Talk};
use super::wanted::{Acquired, Wanted};

/// How long to wait before the first message, and how often to refresh it.
const PATIENCE: Duration = Duration::from_millis(500);
const REFRESH: Duration = Duration::from_secs(1);
/// Time limit for optional information.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The locks, or the holder of one of them.
pub enum Outcome {
    Acquired(Acquired),
    Busy {
        holder: Option<Box<Holding>>,
        waited: Duration,
    },
}

/// A lock that is held, and its holder.
pub struct Holding {
    pub name: String,
    pub holder: Holder,
}

/// Acquires the locks, waiting as long as planned.
pub async fn acquire(plan: &Plan, locks: &Locks, all: &Wanted) -> Result<Outcome> {
    let begun = Instant::now();
    let acquiring = async {
        let mut is_reported = plan.talk == Talk::Quiet;
        loop {
            match ask(plan, all, begun).await {
                Err(error) if goes_on(plan, begun, &error) => {
                    if !std::mem::replace(&mut is_reported, true) {
                        let names = plan.shown();
                        complain(format_args!("tenure: still waiting for {names}: {error}"));
                    }
                }
                answered => return answered,
            }
        }
    };
    let reporting = report(plan, locks, begun);
    let acquired = tokio::select! {
        biased;
        acquired = acquiring => acquired?,
        () = reporting => None,
    };
    Ok(match acquired {
        Some(guard) => Outcome::Acquired(guard),
        None => Outcome::Busy {
            waited: begun.elapsed(),
            holder: find_holder(plan, locks).await.map(Box::new),
        },
    })
}

async fn ask(plan: &Plan, all: &Wanted, begun: Instant) -> tenure::Result<Option<Acquired>> {
    let limit = match plan.wait {
        None => return all.acquire().await.map(Some),
        Some(Duration::ZERO) => return all.try_acquire().await,
        Some(limit) => limit.saturating_sub(begun.elapsed()),
    };
    match all.clone().wait(limit).acquire().await {
        Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
        acquired => acquired.map(Some),
    }
}

/// Whether to keep waiting after an error: a caller that is willing to wait also waits for the
/// server to recover.
fn goes_on(plan: &Plan, begun: Instant, error: &tenure::Error) -> bool {
    let has_time = plan.wait.is_none_or(|limit| begun.elapsed() < limit);
    has_time && error.kind() == ErrorKind::Unavailable
}

/// The first of the locks that another client holds, if the server responds soon.
async fn find_holder(plan: &Plan, locks: &Locks) -> Option<Holding> {
    for name in &plan.names {
        let holder = look(&locks.lock(name)).await;
        // This client may hold some of them while it waits for the others.
        let is_other = |holder: &Holder| holder.lease.client() != Some(locks.id());
        if let Some(holder) = holder.filter(is_other) {
            let name = name.clone();
            return Some(Holding { name, holder });
        }
    }
    None
}

/// The holder of the lock, if the server responds soon.
pub async fn look(lock: &Lock<Unordered>) -> Option<Holder> {
    let looked = tokio::time::timeout(LOOK_MAX, lock.holder()).await;
    looked.ok()?.ok()?
}

/// Describes a holder: host, process, command, since when.
pub fn describe(holder: &Holder) -> String {
    // Records and keys may contain anything.
    printable(&described(holder))
}

fn described(holder: &Holder) -> String {
    if holder.lease.latch().is_some() {
        return holder.to_string();
    }
    if let Some(limit) = holder.lease.semaphore_limit() {
        let (leases, alone) = (holder.readers, described_alone(holder));
        return format!("{leases} leases of its {limit} permits, among them {alone}");
    }
    match holder.readers {
        0 => described_alone(holder),
        1 => format!("one reader, {}", described_alone(holder)),
        readers => format!("{readers} readers, among them {}", described_alone(holder)),
    }
}

/// The holder, or one of those who share the lock.
fn described_alone(holder: &Holder) -> String {
    let lease = holder.reader_leases.first().unwrap_or(&holder.lease);
    let Some(client) = &holder.client else {
        return if lease.is_tenure() {
            format!("lease `{lease}`")
        } else {
            format!("`{lease}` of another library")
        };
    };
    let mut text = format!("{}, process {}", client.host, client.pid);
    let known = [
        client.name.as_ref(),
        client.about.get("user"),
        client.about.get("command"),
    ];
    let known: Vec<&str> = known.into_iter().flatten().map(String::as_str).collect();
    if !known.is_empty() {
        text = format!("{text} ({})", known.join(", "));
    }
    let lease = client.leases.iter().find(|it| it.lease == *lease);
    if let Some(lease) = lease {
        text = format!("{text}, for {}", time::show(lease.held_for));
    }
    text
}

/// Reports the wait until it is dropped: on a terminal in one line that is refreshed and then
/// erased, elsewhere once and only if verbose.
async fn report(plan: &Plan, locks: &Locks, begun: Instant) {
    let on_terminal = io::stderr().is_terminal();
    let is_reported = match plan.talk {
        Talk::Quiet => false,
        Talk::Usual => on_terminal,
        Talk::Verbose => true,
    };
    tokio::time::sleep(PATIENCE).await;
    if !is_reported || plan.wait == Some(Duration::ZERO) {
        return std::future::pending().await;
    }
    let mut line = Line::default();
    loop {
        if let Some(held) = find_holder(plan, locks).await {
            let text = waiting_for(locks, &held).await;
            if !on_terminal {
                complain(text);
                return std::future::pending().await;
            }
            let waited = time::show(begun.elapsed());
            line.show(&format!("{text}; waiting for {waited}"));
        }
        tokio::time::sleep(REFRESH).await;
    }
}

async fn waiting_for(locks: &Locks, Holding { name, holder }: &Holding) -> String {
    let mut text = format!("tenure: waiting for `{name}`: held by {}", describe(holder));
    match holder.remaining {
        Some(left) => {
            let left = time::show(left);
            text = format!("{text}, expires in {left} unless renewed");
        }
        None => text.push_str(", without expiry, so it may not be a lock"),
    }
    let records = tokio::time::timeout(LOOK_MAX, locks.clients()).await;
    let records = records.ok().and_then(Result::ok).unwrap_or_default();
    let others = records.iter().filter(|record| record.id != locks.id());
    let waiting = others.filter_map(|record| record.waiting.get(name));
    match waiting.copied().fold(0, u64::saturating_add) {
        0 => {}
        1 => text.push_str("; 1 other waiter"),
        others => text = format!("{text}; {others} other waiters"),
    }
    text
}

/// A line on the terminal that is overwritten, and erased at the end.
#[derive(Default)]
struct Line {
    is_shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        let width = rustix::termios::tcgetwinsize(io::stderr());
        let width = width.map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { 80 } else { width };
        // A line that is longer than the terminal is wide could not be erased.
        let shown = fitting(text, width - 1);
        self.is_shown = true;
        let _ = write!(io::stderr().lock(), "\r\x1b[K{shown}");
    }
}

/// As much of the text as fits into so many columns, with a mark where it was cut. Characters beyond
/// ASCII may take two columns.
fn fitting(text: &str, columns: usize) -> String {
    let width_of = |letter: char| if letter.is_ascii() { 1 } else { 2 };
    if text.chars().map(width_of).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(2);
    let fits = |letter: &char| {
        let width = width_of(*letter);
        let is_room = width <= left;
        left = left.saturating_sub(width);
        is_room
    };
    let mut shown: String = text.chars().take_while(fits).collect();
    shown.push('…');
    shown
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_wider_than_the_terminal() {
        assert_eq!(fitting("short", 5), "short");
        assert_eq!(fitting("too long", 7), "too l…");
        assert_eq!(fitting("鎖鎖鎖鎖", 8), "鎖鎖鎖鎖");
        assert_eq!(fitting("鎖鎖鎖鎖", 7), "鎖鎖…");
        assert_eq!(fitting("anything", 0), "…");
    }
}
