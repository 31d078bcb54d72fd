//! How long answers take.

use std::time::{Duration, Instant};

use tenure::Error;
use tenure::redis::{Client, Command};
use tenure_view::timings::{Timings, millis};

use super::check::Check;

/// A server that is far away is asked less often.
const PATIENCE: Duration = Duration::from_secs(3);
/// Answers that take longer than this are slow for locks.
const SLOW: Duration = Duration::from_millis(50);

/// The check of how long something took.
pub fn check(name: &'static str, what: &str, times: &Timings) -> Check {
    let (half, most) = (times.percentile(50.0), times.percentile(99.0));
    let found = format!(
        "{what}: half within {}, 99 of 100 within {} ({} tried)",
        millis(half),
        millis(most),
        times.count()
    );
    if most <= SLOW {
        return Check::ok(name, found);
    }
    let advice = "look for a far or crowded network, a busy server (`SLOWLOG GET`, `LATENCY \
                  DOCTOR`), or a busy machine here";
    Check::warn(name, found, advice)
}

/// Asks again and again, until it was often enough or took too long.
///
/// # Errors
///
/// Whatever the asking answers.
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
/// If the server does not answer any more, or refuses it.
pub async fn pings(client: &Client, samples: u32) -> Result<Timings, Error> {
    sample(samples, async || {
        client.run(Command::new("PING")).await.map(drop)
    })
    .await
}
