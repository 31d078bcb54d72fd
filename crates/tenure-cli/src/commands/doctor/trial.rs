//! A test lock: acquired, renewed, waited for, listed, force-released, released.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tenure::redis::Client;
use tenure::{Error, ErrorKind, Guard, Tenure};
use tenure_view::scratch_names;
use tenure_view::timings::{Timings, millis};
use tokio::runtime::Handle;

use super::check::Check;
use super::latency;

/// Short, so that a renewal happens soon.
const TTL: Duration = Duration::from_millis(1_500);
/// How long a step may take: many times what it needs.
const STEP_LIMIT: Duration = Duration::from_secs(5);
/// A lease is watched once it is a second old; this is a little longer.
const WATCHED_AFTER: Duration = Duration::from_millis(1_300);
/// A watched holder is notified within this time; others notice at the next renewal, which is
/// later.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Two clients and an unused name.
pub struct Trial {
    one: Tenure,
    other: Tenure,
    name: String,
}

impl Trial {
    /// Connects both.
    pub async fn begin(url: &str, name: &str) -> Result<Self, Error> {
        let connect = || {
            let builder = Tenure::builder(url).name("tenure doctor");
            builder.runtime(Handle::current()).connect()
        };
        Ok(Self {
            one: connect().await?,
            other: connect().await?,
            name: name.to_owned(),
        })
    }

    /// Tries all operations of locks, and leaves no keys.
    pub async fn run(&self, client: &Client, samples: u32) -> Vec<Check> {
        let checks = self.try_all(samples).await;
        tokio::join!(
            self.one.shutdown(STEP_LIMIT),
            self.other.shutdown(STEP_LIMIT)
        );
        scratch_names::sweep(client, &[self.name.clone(), self.forced()]).await;
        checks
    }

    async fn try_all(&self, samples: u32) -> Vec<Check> {
        let mut checks = Vec::new();
        match self.pairs(samples).await {
            Ok(times) => checks.push(latency::check("lock", "acquire and release", &times)),
            Err(error) => return vec![refused("lock", &error)],
        }
        // In parallel: each needs more than a second.
        let (waited, watched) = tokio::join!(self.wait_and_keep(), self.force());
        for (name, tried) in [("waiting", waited), ("watching", watched)] {
            match tried {
                Ok(found) => checks.extend(found),
                Err(error) => checks.push(refused(name, &error)),
            }
        }
        checks
    }

    async fn pairs(&self, samples: u32) -> Result<Timings, Error> {
        let lock = self.one.lock(&self.name).wait(STEP_LIMIT);
        latency::sample(samples, async || {
            lock.acquire().await?.release().await.map(drop)
        })
        .await
    }

    /// One client waits for the other, is woken, and keeps the lock until it was renewed and
    /// listed.
    async fn wait_and_keep(&self) -> Result<Vec<Check>, Error> {
        let held = self
            .one
            .lock(&self.name)
            .ttl(TTL)
            .wait(STEP_LIMIT)
            .acquire()
            .await?;
        let lock = self.other.lock(&self.name).ttl(TTL).wait(STEP_LIMIT);
        let is_refused = Cell::new(false);
        let waiting = async {
            let guard = lock.acquire().await;
            is_refused.set(guard.is_err());
            (guard, Instant::now())
        };
        let releasing = async {
            // It asks, subscribes and asks again: from then on it waits.
            let waits = || self.other.stats().busy >= 2 || is_refused.get();
            until(STEP_LIMIT, waits).await;
            (Instant::now(), held.release().await)
        };
        let ((guard, woken), (released, release)) = tokio::join!(waiting, releasing);
        let (guard, _) = (guard?, release?);
        let mut checks = vec![self.of_waiting(woken.saturating_duration_since(released))];
        checks.push(self.of_keeping(&guard).await);
        guard.release().await?;
        Ok(checks)
    }

    fn of_waiting(&self, took: Duration) -> Check {
        let stats = self.other.stats();
        if stats.messages_refused > 0 || stats.woken_by_message == 0 {
            return Check::warn(
                "waiting",
                format!(
                    "no notification arrived: the waiter found out by polling after {}",
                    millis(took)
                ),
                "allow the channels, see `rights`: without notifications a waiter polls three \
                 times per ttl",
            );
        }
        Check::ok(
            "waiting",
            format!(
                "a waiter acquired the lock {} after its release",
                millis(took)
            ),
        )
    }

    async fn of_keeping(&self, guard: &Guard) -> Check {
        let renewed = || self.other.stats().renewed > 0;
        let listed = || self.other.stats().records_written > 0;
        let both = || renewed() && listed();
        until(STEP_LIMIT, both).await;
        let advice = "see `rights`, and the server's log";
        if !renewed() || !guard.is_valid() {
            return Check::bad("keeping", "a lease was not renewed", advice);
        }
        if !listed() {
            return Check::warn(
                "keeping",
                "renewed, but `tenure ls` does not list it",
                advice,
            );
        }
        Check::ok("keeping", "a lease was renewed and listed")
    }

    /// Ends a lease by force: its holder should notice at once.
    async fn force(&self) -> Result<Vec<Check>, Error> {
        let name = self.forced();
        let guard = self.one.lock(&name).wait(STEP_LIMIT).acquire().await?;
        tokio::time::sleep(WATCHED_AFTER).await;
        let forced = Instant::now();
        self.other.force_release(&name, guard.lease_id()).await?;
        let noticed = tokio::time::timeout(NOTICED_WITHIN, guard.lost()).await;
        let check = if noticed.is_ok() {
            let took = millis(forced.elapsed());
            Check::ok(
                "watching",
                format!("a holder noticed a forced release in {took}"),
            )
        } else {
            Check::warn(
                "watching",
                "a holder did not notice a forced release before its next renewal",
                "allow `CLIENT TRACKING` and `CLIENT CACHING`, see `rights`; a proxy may drop push \
                 messages",
            )
        };
        Ok(vec![check])
    }

    fn forced(&self) -> String {
        format!("{}-forced", self.name)
    }
}

/// The check for an error in the trial.
pub fn refused(name: &'static str, error: &Error) -> Check {
    let advice = match error.kind() {
        ErrorKind::Denied => "see `rights`",
        ErrorKind::OutOfMemory => "see `memory`",
        ErrorKind::ReadOnly => "see `role`",
        _ => "see the server's log",
    };
    Check::bad(name, error, advice)
}

async fn until(limit: Duration, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < limit {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
