//! Limits of concurrent work.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Kind, Problem};
use crate::settings::LimitSettings;

/// How many expensive requests, such as for all locks or all orders of an item, run at once.
const HEAVY_MAX: usize = 4;
/// How long such a request waits for its turn.
const HEAVY_WITHIN: Duration = Duration::from_secs(3);

/// What is left of the limits.
#[derive(Debug)]
pub(crate) struct Limits {
    waits: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
    rate: Option<Rate>,
}

/// Counts one waiting request or one stream while it exists.
#[must_use]
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Limits {
    pub(crate) fn new(settings: &LimitSettings) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            waits: places(settings.max_waits),
            streams: places(settings.max_streams),
            heavy: places(HEAVY_MAX),
            rate: settings.rate.map(Rate::new),
        }
    }

    /// A permit for a waiting request.
    pub(crate) fn wait(&self) -> Result<Permit, Problem> {
        take(
            &self.waits,
            "too many waiting requests: raise --max-waits, or retry later",
        )
    }

    /// A permit for a stream.
    pub(crate) fn stream(&self) -> Result<Permit, Problem> {
        take(
            &self.streams,
            "too many open streams: raise --max-streams, or retry later",
        )
    }

    /// A permit for an expensive request, once one is free.
    pub(crate) async fn heavy(&self) -> Result<Permit, Problem> {
        let waiting = Arc::clone(&self.heavy).acquire_owned();
        if let Ok(Ok(permit)) = tokio::time::timeout(HEAVY_WITHIN, waiting).await {
            return Ok(Permit { _permit: permit });
        }
        let detail = "too many large reads at once: retry later";
        Err(Problem::new(Kind::TOO_MANY, detail).retry_after(HEAVY_WITHIN))
    }

    /// Whether an address may send another request now.
    pub(crate) fn admit(&self, from: IpAddr) -> Result<(), Problem> {
        match &self.rate {
            Some(rate) => rate.admit(from, Instant::now()),
            None => Ok(()),
        }
    }
}

fn take(places: &Arc<Semaphore>, refusal: &str) -> Result<Permit, Problem> {
    let permit = Arc::clone(places).try_acquire_owned();
    let permit = permit.map(|permit| Permit { _permit: permit });
    let refuse = |_| Problem::new(Kind::TOO_MANY, refusal).retry_after(Duration::from_secs(1));
    permit.map_err(refuse)
}

/// A token bucket for each address.
#[derive(Debug)]
struct Rate {
    per_second: f64,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

/// With more addresses than this, those whose buckets are full again are dropped.
const ADDRESSES_MAX: usize = 10_000;

impl Rate {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            buckets: Mutex::default(),
        }
    }

    fn admit(&self, from: IpAddr, now: Instant) -> Result<(), Problem> {
        let full = self.per_second * 2.0;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= ADDRESSES_MAX {
            buckets.retain(|_, bucket| bucket.at(now, self.per_second, full) < full);
        }
        let fresh = Bucket {
            tokens: full,
            filled_at: now,
        };
        let bucket = buckets.entry(from).or_insert(fresh);
        bucket.tokens = bucket.at(now, self.per_second, full);
        bucket.filled_at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let pause = Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second);
        let detail = format!(
            "more than {} requests per second from `{from}`: slow down, or raise --rate",
            self.per_second
        );
        Err(Problem::new(Kind::TOO_MANY, detail).retry_after(pause))
    }
}

impl Bucket {
    fn at(self, now: Instant, per_second: f64, full: f64) -> f64 {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        (self.tokens + passed * per_second).min(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let rate = Rate::new(10);
        let (from, start) = (IpAddr::from([127, 0, 0, 1]), Instant::now());
        for _ in 0..20 {
            assert!(rate.admit(from, start).is_ok());
        }
        assert!(rate.admit(from, start).is_err());
        assert!(rate.admit(IpAddr::from([127, 0, 0, 2]), start).is_ok());
        assert!(rate.admit(from, start + Duration::from_millis(150)).is_ok());
        assert!(
            rate.admit(from, start + Duration::from_millis(150))
                .is_err()
        );
    }
}
