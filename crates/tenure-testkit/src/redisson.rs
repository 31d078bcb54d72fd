//! A client that uses locks like a Java process with Redisson, written from a description of the wire
//! format. The scripts are the kit's own: only data, channels, messages and semantics are Redisson's.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{Reply, RespClient};

/// The longest sleep of a waiter, so that a test cannot hang.
const NAP_MAX: Duration = Duration::from_secs(60);

/// If busy, returns the remaining lease of the holder, or -1. Otherwise nil, and the token if there is a
/// counter.
const LOCK: &str = "\
local lock, counter, owner, lease = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('EXISTS', lock) == 1 and redis.call('HEXISTS', lock, owner) == 0 then
  return {redis.call('PTTL', lock), -1}
end
local token = counter and redis.call('INCR', counter) or 0
redis.call('HINCRBY', lock, owner, 1)
redis.call('PEXPIRE', lock, lease)
return {false, token}";

/// Nil if another client holds it, 0 if this thread still holds it, 1 if it is free.
const UNLOCK: &str = "\
local lock, channel, owner, lease = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not redis.call('HGET', lock, owner) then
  return false
end
if redis.call('HINCRBY', lock, owner, -1) > 0 then
  redis.call('PEXPIRE', lock, lease)
  return 0
end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, '0')
return 1";

const FORCE_UNLOCK: &str = "\
local deleted = redis.call('DEL', KEYS[1])
if deleted == 1 then
  redis.call('PUBLISH', KEYS[2], '0')
end
return deleted";

const RENEW: &str = "\
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// A thread of a Java process that uses Redisson.
#[derive(Debug)]
pub struct Redisson {
    addr: SocketAddr,
    redis: RespClient,
    owner: String,
    lease: Duration,
}

impl Redisson {
    /// Connects with a random UUID, like every Redisson client, and leases of 30 s.
    pub fn connect(addr: SocketAddr) -> Self {
        let random: u128 = rand::random();
        // Version 4, like those of `java.util.UUID.randomUUID()`.
        let uuid = random & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
        let hex = format!("{uuid:032x}");
        let groups = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        Self {
            addr,
            redis: RespClient::connect(addr),
            owner: format!("{}:7", groups.join("-")),
            lease: Duration::from_secs(30),
        }
    }

    /// Sets the length of leases.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The field that this thread writes into locks.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// `tryLock()`: acquires or re-enters the lock; `false` if it is busy.
    pub fn try_lock(&mut self, name: &str) -> bool {
        self.attempt(&[name]).is_ok()
    }

    /// `tryLock(wait)`: subscribes before the second attempt, then sleeps until a message or the end of
    /// the holder's lease.
    pub fn lock_within(&mut self, name: &str, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        if self.try_lock(name) {
            return true;
        }
        let mut listener = RespClient::connect(self.addr);
        listener.subscribe(&[&channel_of(name)]);
        loop {
            let Err(holder_ends) = self.attempt(&[name]) else {
                return true;
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let message = listener.next_message(holder_ends.unwrap_or(NAP_MAX).min(left));
            if let Some(message) = message {
                let number = message.payload.parse::<i64>();
                number.expect("Redisson's listener requires a number");
            }
        }
    }

    /// `tryLockAndGetToken()` of a fenced lock.
    pub fn try_lock_and_get_token(&mut self, name: &str) -> Option<u64> {
        let counter = prefixed("redisson_lock_token", name);
        self.attempt(&[name, &counter]).ok()
    }

    /// `unlock()`: whether the lock is free now; `None` if this thread did not hold it, where Java throws
    /// an exception.
    pub fn unlock(&mut self, name: &str) -> Option<bool> {
        let reply = self.eval(UNLOCK, &[name, &channel_of(name)]);
        (!reply.is_nil()).then(|| reply.int() == 1)
    }

    /// `forceUnlock()`: whether there was a lock.
    pub fn force_unlock(&mut self, name: &str) -> bool {
        self.eval(FORCE_UNLOCK, &[name, &channel_of(name)]).int() == 1
    }

    /// The watchdog's renewal, every third of a lease: whether the lock is still held.
    pub fn renew(&mut self, name: &str) -> bool {
        self.eval(RENEW, &[name]).int() == 1
    }

    /// `getHoldCount()`.
    pub fn hold_count(&mut self, name: &str) -> i64 {
        let count = self.redis.command(&["HGET", name, &self.owner]);
        if count.is_nil() { 0 } else { count.int() }
    }

    /// `isLocked()`.
    pub fn is_locked(&mut self, name: &str) -> bool {
        self.redis.command(&["EXISTS", name]).int() == 1
    }

    /// The token on success, otherwise the remaining lease of the holder, if it ends.
    fn attempt(&mut self, keys: &[&str]) -> Result<u64, Option<Duration>> {
        let reply = self.eval(LOCK, keys);
        let [holder_ends, token] = reply.array() else {
            panic!("unexpected reply of the script: {reply:?}");
        };
        if holder_ends.is_nil() {
            return Ok(token.int().unsigned_abs());
        }
        Err(u64::try_from(holder_ends.int())
            .ok()
            .map(Duration::from_millis))
    }

    fn eval(&mut self, script: &str, keys: &[&str]) -> Reply {
        let (count, lease_ms) = (keys.len().to_string(), self.lease.as_millis().to_string());
        let mut words = vec!["EVAL", script, &count];
        words.extend(keys);
        words.extend([self.owner.as_str(), &lease_ms]);
        self.redis.command(&words)
    }
}

fn channel_of(name: &str) -> String {
    prefixed("redisson_lock__channel", name)
}

fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}
