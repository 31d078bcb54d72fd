//! The latency of a server.

use std::time::{Duration, Instant};

use tenure::Error;
use tenure::redis::{Client, Command};
use tenure_view::timings::{Timings, millis};

use super::check::Check;

/// A distant server is asked less often.
const PATIENCE: Duration = Duration::from_secs(3);
/// Answers that take longer than this are slow for locks.
const SLOW: Duration = Duration::from_millis(50);

/// The check of how long something took.
pub fn check(name: &'static str, what: &str, times: &Timings) -> Check {
    let (half, most) = (times.percentile(50.0), times.percentile(99.0));
    let found = format!(
        "{what}: p50 {}, p99 {} ({} samples)",
        millis(half),
        millis(most),
        times.count()
    );
    if most <= SLOW {
        return Check::ok(name, found);
    }
    let advice = "check for a slow network, a busy server (`SLOWLOG GET`, `LATENCY DOCTOR`) or a \
                  busy local machine";
    Check::warn(name, found, advice)
}

/// Repeats a request, until there are enough samples or it takes too long.
///
/// # Errors
///
/// The error of the request.
pub async fn sample(
    samples: u32,
    mut ask: impl AsyncFnMut() -> Result<(), Error>,
) -> Result<Timings, Error> {
    let mut times = Timings::new();
    let begun = Instant::now();
    for _ in 0..samples {
        let asked = Instant::now();
        ask().await?;
        times.note(asked.elapsed());
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    Ok(times)
}

/// How long a `PING` takes.
///
/// # Errors
///
/// If the server stops responding or refuses the request.
pub async fn pings(client: &Client, samples: u32) -> Result<Timings, Error> {
    sample(samples, async || {
        client.run(Command::new("PING")).await.map(drop)
    })
    .await
}
