//! The server's clock against ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure::Error;
use tenure::redis::{Client, Command, Value};
use tenure_view::timings::millis;

use super::check::Check;
use super::facts::allowed;

/// How often to ask: the fastest response is the most exact.
const TRIES: u32 = 8;
/// Clocks that are further apart are not synchronized.
const APART_US: u64 = 1_000_000;

/// How far the server's clock is ahead of ours.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    pub ahead_us: i64,
    /// The error of the measurement: half of the response time.
    pub give_or_take: Duration,
}

impl Offset {
    /// Asks the server for its time; `None` if the user may not.
    ///
    /// # Errors
    ///
    /// If the server stops responding.
    pub async fn measure(client: &Client) -> Result<Option<Self>, Error> {
        let mut best: Option<Self> = None;
        for _ in 0..TRIES {
            let asked_us = now_us();
            let answer = allowed(client.run(Command::new("TIME")).await)?;
            let answered_us = now_us();
            let Some(server_us) = answer.as_ref().and_then(micros) else {
                return Ok(None);
            };
            // Our own clock may be set back in between.
            let half_us = (answered_us - asked_us).max(0) / 2;
            let offset = Self {
                ahead_us: server_us - (asked_us + half_us),
                give_or_take: Duration::from_micros(half_us.unsigned_abs()),
            };
            if best.is_none_or(|best| offset.give_or_take < best.give_or_take) {
                best = Some(offset);
            }
        }
        Ok(best)
    }

    pub fn check(self) -> Check {
        let apart = self.ahead_us.unsigned_abs();
        let direction = if self.ahead_us < 0 {
            "behind"
        } else {
            "ahead of"
        };
        let found = format!(
            "{} {direction} the local clock, give or take {}",
            millis(Duration::from_micros(apart)),
            millis(self.give_or_take)
        );
        let give_or_take = u64::try_from(self.give_or_take.as_micros()).unwrap_or(u64::MAX);
        if apart.saturating_sub(give_or_take) <= APART_US {
            return Check::ok("clock", found);
        }
        let advice = "synchronize both with NTP: leases stay correct, but fences follow the \
                      server's clock and times are shown by the local one";
        Check::warn("clock", found, advice)
    }
}

/// The check if the user may not ask.
pub fn unknown() -> Check {
    Check::unknown("clock", "the user may not run TIME", "locks need it: +time")
}

fn now_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn micros(time: &Value) -> Option<i64> {
    let [seconds, micros] = time.as_array()? else {
        return None;
    };
    seconds
        .as_int()?
        .checked_mul(1_000_000)?
        .checked_add(micros.as_int()?)
}
