#!/usr/bin/env python3
"""Takes a lock as Tenure does, from another language: docs/wire-format.md and redis-py, nothing else.

    python3 crates/tenure/examples/other_language.py redis://127.0.0.1/ report
    python3 crates/tenure/examples/other_language.py --layout redisson redis://127.0.0.1/ report

It waits for the lock, holds it for a second and renews it meanwhile. While somebody else holds it, it
prints:

    waiting for <lease id of the holder>
    holds report with fence 1794786135890302
    renewed
    released

It needs redis-py 4 (`pip install redis`, or Debian's python3-redis) and Redis 7. It excludes, waits for,
wakes and out-fences Tenure, and in the layout `redisson` Java's Redisson as well.
"""

import argparse
import sys
import time
import uuid

import redis

TTL_MS = 30_000

# What a script needs to know of a layout: who holds the lock, how to take it, how to let it go.
NATIVE = """
local function holder() return redis.call('GET', KEYS[1]) end
local function hold(id, ttl) redis.call('SET', KEYS[1], id, 'PX', ttl) end
local function let_go() redis.call('DEL', KEYS[1]) end
local function mint(clock)
  -- A stream without entries: its last id is the last fence. XADD refuses an id that is not above it.
  local us = clock[2] + 0
  local id = string.format('%s%03d-%d', clock[1], math.floor(us / 1000), us % 1000)
  local minted = redis.pcall('XADD', KEYS[2], 'MAXLEN', '0', id, 'f', '')
  if type(minted) == 'table' then
    minted = redis.call('XADD', KEYS[2], 'MAXLEN', '0', '*', 'f', '')
  end
  local ms, sequence = string.match(minted, '^(%d+)-(%d+)$')
  redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', ms + 86400000))
  return ms * 1000 + sequence
end
"""
REDISSON = """
local function holder() return redis.call('HKEYS', KEYS[1])[1] or false end
local function hold(id, ttl)
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], id, '1')
  redis.call('PEXPIRE', KEYS[1], ttl)
end
local function let_go() redis.call('DEL', KEYS[1]) end
local function mint(clock)
  -- Java counts on from here. It would begin at 1 again if the counter ended.
  local now = clock[1] * 1000000 + clock[2]
  local fence = math.max(tonumber(redis.call('GET', KEYS[2]) or 0) + 1, now)
  redis.call('SET', KEYS[2], string.format('%.0f', fence))
  return fence
end
"""

# KEYS lock, fence counter, queue. ARGV lease id, ttl in ms. {1, fence} or {0, holder, ms left}.
ACQUIRE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local other = holder()
if other and other ~= ARGV[1] then
  redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', now), ARGV[1])
  redis.call('PEXPIRE', KEYS[3], 86400000)
  return {0, other, redis.call('PTTL', KEYS[1])}
end
hold(ARGV[1], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[1])
return {1, string.format('%.0f', mint(clock))}
"""

# KEYS lock. ARGV lease id, ttl in ms. 1 if it is still held.
RENEW = """
if holder() ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# KEYS lock, queue. ARGV lease id, our channel, Redisson's channel or nothing. 1 if it was held.
RELEASE = """
if holder() ~= ARGV[1] then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return 0
end
let_go()
local waiter = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
local java = false
if ARGV[3] ~= '' then
  -- Whoever hears Redisson's channel alone is one of Redisson's waiters.
  local listeners = redis.call('PUBSUB', 'NUMSUB', ARGV[2], ARGV[3])
  java = listeners[4] > listeners[2]
end
if waiter and not java then
  redis.call('ZREM', KEYS[2], waiter)
  hold(waiter, 2000)
  redis.call('PUBLISH', ARGV[2], waiter)
  return 1
end
if waiter then redis.call('PUBLISH', ARGV[2], 'open ' .. waiter) end
if ARGV[3] ~= '' then redis.call('PUBLISH', ARGV[3], '0') end
return 1
"""


class Lock:
    """One lock, for one lease after the other."""

    def __init__(self, server, name, layout):
        self.server, self.name, self.redisson = server, name, layout == "redisson"
        # Version 8, by which Tenure's clients are told from Java's.
        self.client = uuid.UUID(int=uuid.uuid4().int & ~(0xF << 76) | 8 << 76)
        self.numbers = 0
        self.lease = None
        self.queue, self.wake = self.beside("queue"), self.beside("wake")
        self.fence_key, self.channel = self.beside("fences"), ""
        if self.redisson:
            self.fence_key = self.beside_redisson("redisson_lock_token")
            self.channel = self.beside_redisson("redisson_lock__channel")
        words = REDISSON if self.redisson else NATIVE
        self.scripts = {
            script: server.register_script("#!lua flags=allow-oom\n" + words + script)
            for script in (RENEW, RELEASE)
        }
        self.scripts[ACQUIRE] = server.register_script("#!lua\n" + words + ACQUIRE)

    def beside(self, role):
        """A key of Tenure's: in the lock's slot, by Redis's own rule for hash tags."""
        _, brace, after = self.name.partition("{")
        has_tag = brace and after.find("}") > 0
        return f"tenure:{role}:{self.name}" if has_tag else f"tenure:{role}:{{{self.name}}}"

    def beside_redisson(self, role):
        """A key of Redisson's, by its own rule."""
        return f"{role}:{self.name}" if "{" in self.name else f"{role}:{{{self.name}}}"

    def fresh_lease(self):
        self.numbers += 1
        if self.redisson:
            return f"{self.client}:{self.numbers}{TTL_MS:08}"
        return f"tenure:{self.client.hex}:{self.numbers}:{TTL_MS}"

    def attempt(self):
        keys = [self.name, self.fence_key, self.queue]
        return self.scripts[ACQUIRE](keys=keys, args=[self.lease, TTL_MS])

    def acquire(self, say):
        """Waits for the lock, and returns the fence."""
        self.lease = self.fresh_lease()
        with self.server.pubsub() as ear:
            # Before the attempt: so no message can be missed. Ours first, see RELEASE.
            for channel in filter(None, (self.wake, self.channel)):
                ear.subscribe(channel)
                assert ear.get_message(timeout=5)["type"] == "subscribe"
            told = None
            while True:
                granted, who, *left = self.attempt()
                if granted:
                    return int(who)
                if who != told:
                    say(f"waiting for {who.decode()}")
                    told = who
                # A holder that died says nothing, and a foreign one may release in silence.
                self.sleep(ear, min(left[0] / 1000, 1) if left[0] > 0 else 1)

    def sleep(self, ear, seconds):
        """Until it is our turn, or for this long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            message = ear.get_message(ignore_subscribe_messages=True, timeout=left)
            if message is None:
                continue
            text = message["data"].decode()
            if text == self.lease or message["channel"].decode() == self.channel and text == "0":
                return

    def renew(self):
        return self.scripts[RENEW](keys=[self.name], args=[self.lease, TTL_MS]) == 1

    def release(self):
        args = [self.lease, self.wake, self.channel]
        return self.scripts[RELEASE](keys=[self.name, self.queue], args=args) == 1


def main():
    parser = argparse.ArgumentParser(description="Take a lock as Tenure does.")
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--layout", choices=["native", "redisson"], default="native")
    parser.add_argument("--hold", type=float, default=1.0, metavar="SECONDS")
    options = parser.parse_args()

    def say(text):
        print(text, flush=True)

    lock = Lock(redis.Redis.from_url(options.url), options.name, options.layout)
    fence = lock.acquire(say)
    try:
        say(f"holds {options.name} with fence {fence}")
        time.sleep(options.hold)
        say("renewed" if lock.renew() else "lost")
    finally:
        say("released" if lock.release() else "it was gone")


if __name__ == "__main__":
    sys.exit(main())
