//! The counter that fences come from: it ends, is deleted, or comes back as it was a while ago.

use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::RespClient;

use super::server::contended;
use super::{Kind, Lane};
use crate::layout;

const NOTICE_LIMIT: Duration = Duration::from_millis(500);
/// Where the counter is kept meanwhile, for a minute at most.
const KEPT: &str = "kept-aside";
const KEPT_MS: &str = "60000";
const AGE_MS: std::ops::Range<u64> = 20..800;

impl Lane<'_> {
    /// Does it to the counter of a lock that is hardly ever free, on one server.
    pub(super) fn on_fence(&self, kind: Kind, rng: &mut StdRng) -> bool {
        let lock = contended(rng);
        let keys = layout::fence_keys(self.fleet.layout, lock);
        let keepers = self.fleet.stage.keepers();
        let server = keepers[rng.random_range(0..keepers.len())];
        let mut redis = server.client();
        let age = Duration::from_millis(rng.random_range(AGE_MS));
        let end = Instant::now() + NOTICE_LIMIT;
        while Instant::now() < end {
            if keys.iter().any(|key| done_to(&mut redis, kind, key, age)) {
                return true;
            }
        }
        false
    }
}

/// False if there is no such counter at the moment.
fn done_to(redis: &mut RespClient, kind: Kind, key: &str, age: Duration) -> bool {
    match kind {
        Kind::DeleteFence => redis.command(&["DEL", key]).int() == 1,
        Kind::ExpireFence => redis.command(&["PEXPIRE", key, "1"]).int() == 1,
        Kind::RollBackFence => roll_back(redis, key, age),
        other => unreachable!("`{}` is not done to fences", other.name()),
    }
}

/// Puts the counter back to where it was, as a restored copy does.
fn roll_back(redis: &mut RespClient, key: &str, age: Duration) -> bool {
    if redis.command(&["COPY", key, KEPT, "REPLACE"]).int() == 0 {
        return false;
    }
    redis.command(&["PEXPIRE", KEPT, KEPT_MS]);
    let ttl_ms = redis.command(&["PTTL", key]).int();
    thread::sleep(age);
    redis.command(&["MULTI"]);
    redis.command(&["COPY", KEPT, key, "REPLACE"]);
    if ttl_ms > 0 {
        redis.command(&["PEXPIRE", key, &ttl_ms.to_string()]);
    }
    redis.command(&["DEL", KEPT]);
    redis.command(&["EXEC"]);
    true
}
