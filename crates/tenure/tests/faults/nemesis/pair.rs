//! Two servers that change places under their clients.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::{Pair, Proxy};

use super::Lane;

/// Longer than anybody waits here: what is written while it lasts does not reach the copy.
const UNHEARD: Duration = Duration::from_secs(60);
/// How far a copy lags behind when it takes over, in a phase that has the time.
const LAG_MAX_MS: u64 = 5_000;

impl Lane<'_> {
    /// Puts the copy in the primary's place for all clients, without what it has not heard of for
    /// the last seconds. Connections stay open. True if any was moved.
    pub(super) fn swap(&self, pair: &Pair, rng: &mut StdRng) -> bool {
        let most_ms = u64::try_from(self.left().as_millis() / 8).unwrap_or(LAG_MAX_MS);
        let lag_ms = rng.random_range(0..=most_ms.clamp(300, LAG_MAX_MS));
        pair.set_lag(UNHEARD);
        thread::sleep(Duration::from_millis(lag_ms));
        let target = pair.promote().addr();
        let proxies = || self.fleet.slots.iter().flat_map(|slot| &slot.proxies);
        let moved: usize = thread::scope(|scope| {
            let moving: Vec<_> = proxies()
                .map(|proxy: &Proxy| scope.spawn(move || proxy.swap_target(target)))
                .collect();
            moving.into_iter().map(|it| it.join().unwrap()).sum()
        });
        pair.follow_new();
        moved > 0
    }
}
