//! One server, or one of several.

use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure::{Layout, Released};
use tenure_testkit::history::{Outcome, Pending, now_ns};
use tenure_testkit::{ClientKind, Proxy, Recorder, RedisServer, Redisson, RespClient, eventually};

use super::{Clock, Kind, Lane, random_time};
use crate::client::{BRISK, COLD, COLD_COUNT, HOT};
use crate::stage::NODE_WITH_CLOCK;

const NOTICE_LIMIT: Duration = Duration::from_millis(500);
/// What a server that evicts may use beyond what it has, and what is put there.
const EVICT_ROOM: u64 = 500_000;
const BALLAST_BYTES: usize = 100_000;
const BALLAST_MAX: u64 = 40;
const BALLAST_MS: &str = "2000";
/// How long a Java process waits for a lock before it gives up.
const JAVA_WAIT: Duration = Duration::from_millis(800);
/// The numbers of foreign clients begin here.
const FOREIGN: u64 = 1_000_000;
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

impl Lane<'_> {
    pub(super) fn on_server(&self, kind: Kind, rng: &mut StdRng) -> bool {
        let keepers = self.fleet.stage.keepers();
        let at = match kind {
            Kind::ClockForward | Kind::ClockBack => NODE_WITH_CLOCK,
            _ => rng.random_range(0..keepers.len()),
        };
        let server = keepers[at];
        match kind {
            Kind::PauseServer => self.while_clients_send(at, || {
                server.pause();
                thread::sleep(random_time(rng));
                server.resume();
            }),
            Kind::KillServer => self.while_clients_send(at, || {
                server.kill();
                thread::sleep(random_time(rng) / 4);
                server.restart();
            }),
            Kind::RestartEmpty => self.while_clients_send(at, || server.restart_empty()),
            Kind::BusyScript => self.while_clients_send(at, || {
                let script = server.busy_script(rng.random_range(80..400));
                script.wait();
            }),
            Kind::OutOfMemory => {
                let before = oom_count(server);
                server.fill_memory();
                thread::sleep(random_time(rng) / 2);
                server.free_memory();
                oom_count(server) > before
            }
            Kind::ScriptFlush => {
                server.script_flush();
                eventually(NOTICE_LIMIT, || server.stat("number_of_cached_scripts") > 0)
            }
            Kind::KillConnections => server.kill_clients(ClientKind::Normal) > 0,
            Kind::KillSubscribers => server.kill_clients(ClientKind::Pubsub) > 0,
            Kind::ForeignHolder if self.fleet.layout == Layout::Redisson => {
                self.hold_as_java(server, rng)
            }
            Kind::ForeignHolder => self.hold_as_a_stranger(server, rng),
            Kind::FlushAll => {
                let mut client = server.client();
                let keys = client.command(&["DBSIZE"]).int();
                client.command(&["FLUSHALL"]);
                keys > 0
            }
            Kind::DeleteLock => {
                let needed = self.fleet.stage.keepers_needed();
                let struck: Vec<&&RedisServer> = keepers.sample(rng, needed).collect();
                let name = contended(rng);
                let deleted = struck.iter().map(|it| deleted(&mut it.client(), name));
                deleted.filter(|deleted| *deleted).count() > 0
            }
            Kind::Evict => evict(server, rng),
            Kind::ForceRelease => self.release_by_force(rng),
            Kind::ClockForward => self.turn_clock(Clock::step_forward, rng),
            Kind::ClockBack => self.turn_clock(Clock::step_back, rng),
            other => unreachable!("`{}` is not done to the server", other.name()),
        }
    }

    /// Whether clients sent something to this server while it happened: then they noticed.
    pub(super) fn while_clients_send(&self, at: usize, strike: impl FnOnce()) -> bool {
        let before = self.requests(at);
        strike();
        self.requests(at) > before
    }

    fn requests(&self, at: usize) -> u64 {
        let proxies = self.fleet.slots.iter().map(|slot| &slot.proxies[at]);
        let counts = proxies.map(Proxy::counts);
        // Clients that find the server gone keep reconnecting.
        counts
            .map(|counts| counts.request_chunks + counts.connections)
            .sum()
    }

    fn turn_clock(&self, turn: impl FnOnce(&Clock, Duration), rng: &mut StdRng) -> bool {
        let clock = &self.clocks[0];
        let seconds = [0.1, 0.5, 5.0, 600.0][rng.random_range(0..4)];
        turn(clock, Duration::from_secs_f64(seconds));
        // Some client asks the server within that time.
        self.while_clients_send(NODE_WITH_CLOCK, || thread::sleep(random_time(rng)))
    }

    /// Ends a lease, whoever of its process holds that now. It must really have been held: what is
    /// released meanwhile does not count.
    fn release_by_force(&self, rng: &mut StdRng) -> bool {
        let name = contended(rng);
        let Ok(locks) = self.fleet.access(&[]).connect_blocking(None) else {
            return false;
        };
        eventually(NOTICE_LIMIT, || {
            let holder = locks.lock(name).holder().ok().flatten();
            let forced = holder.map(|holder| locks.force_release(name, &holder.lease));
            matches!(forced, Some(Ok(Released::WasHeld)))
        })
    }

    /// Takes a lock as any other library does, by `SET NX PX`, and leaves it properly or not.
    fn hold_as_a_stranger(&self, server: &RedisServer, rng: &mut StdRng) -> bool {
        let client = FOREIGN + rng.random_range(0..1_000_000_000);
        let recorder = Recorder::create(self.dir, client);
        let ttl_ms = rng.random_range(100..400);
        let name = random_lock(rng);
        let (token, ttl) = (format!("stranger-{client}"), ttl_ms.to_string());
        let mut connection = server.client();
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            let call = recorder.acquire(self.number, &name);
            let sent_ns = now_ns();
            let reply = connection.command(&["SET", &name, &token, "NX", "PX", &ttl]);
            if reply.is_nil() {
                call.end(Outcome::Busy);
                continue;
            }
            // Two milliseconds for the rounding of both sides.
            let until_ns = sent_ns + (ttl_ms - 2) * 1_000_000;
            let hold = call.granted(None, until_ns);
            let held_ms = rng.random_range(0..ttl_ms * 2);
            thread::sleep(Duration::from_millis(held_ms.min(ttl_ms)));
            if held_ms < ttl_ms {
                let call = self.letting_go(&recorder, &name, hold, until_ns);
                connection.command(&["EVAL", COMPARE_AND_DELETE, "1", &name, &token]);
                call.end(Outcome::Released);
            } else {
                recorder.lost(self.number, &name, hold);
            }
            return true;
        }
        false
    }

    /// Waits for a lock as a Java process would, enters it once or twice, and leaves it properly or
    /// not. Its token must fit into the growth of our fences.
    fn hold_as_java(&self, server: &RedisServer, rng: &mut StdRng) -> bool {
        let client = FOREIGN + rng.random_range(0..1_000_000_000);
        let recorder = Recorder::create(self.dir, client);
        let lease_ms = rng.random_range(100..400);
        let name = random_lock(rng);
        let lease = Duration::from_millis(lease_ms);
        let mut java = Redisson::connect(server.addr()).lease(lease);
        let call = recorder.acquire(self.number, &name);
        if !java.lock_within(&name, JAVA_WAIT) {
            call.end(Outcome::Busy);
            return false;
        }
        let sent_ns = now_ns();
        let Some(token) = java.try_lock_and_get_token(&name) else {
            call.end(Outcome::Busy);
            return false;
        };
        // Two milliseconds for the rounding of both sides.
        let until_ns = sent_ns + (lease_ms - 2) * 1_000_000;
        let hold = call.granted(Some(token), until_ns);
        let held_ms = rng.random_range(0..lease_ms * 2);
        thread::sleep(Duration::from_millis(held_ms.min(lease_ms)));
        if held_ms < lease_ms {
            let call = self.letting_go(&recorder, &name, hold, until_ns);
            while java.unlock(&name) == Some(false) {}
            call.end(Outcome::Released);
        } else {
            recorder.lost(self.number, &name, hold);
        }
        true
    }

    /// Writes down that a foreign holder lets go. One that was woken late has lost the lock by then.
    fn letting_go<'a>(
        &self,
        recorder: &'a Recorder,
        name: &str,
        hold: u64,
        until_ns: u64,
    ) -> Pending<'a> {
        let release = recorder.release(self.number, name, hold, until_ns);
        if now_ns() >= until_ns {
            recorder.lost(self.number, name, hold);
        }
        release
    }
}

fn random_lock(rng: &mut StdRng) -> String {
    if rng.random_bool(0.5) {
        HOT.to_owned()
    } else {
        format!("{COLD}{}", rng.random_range(0..COLD_COUNT))
    }
}

/// Fills the memory of a server that drops keys then, until it has dropped some that were not used
/// for a moment.
fn evict(server: &RedisServer, rng: &mut StdRng) -> bool {
    let before = server.stat("evicted_keys");
    server.set_config("maxmemory-policy", "allkeys-lru");
    server.set_maxmemory(server.stat("used_memory") + EVICT_ROOM);
    let mut client = server.client();
    let ballast = "x".repeat(BALLAST_BYTES);
    let evicted = (0..BALLAST_MAX).any(|number| {
        let key = format!("ballast:{number}");
        // Refused while it has nothing to drop.
        let _ = client.try_command(&["SET", &key, &ballast, "PX", BALLAST_MS]);
        server.stat("evicted_keys") > before
    });
    thread::sleep(random_time(rng) / 2);
    server.free_memory();
    server.set_config("maxmemory-policy", "noeviction");
    for number in 0..BALLAST_MAX {
        client.command(&["UNLINK", &format!("ballast:{number}")]);
    }
    evicted
}

/// One of the locks that are hardly ever free.
pub(super) fn contended(rng: &mut StdRng) -> &'static str {
    if rng.random_bool(0.5) { HOT } else { BRISK }
}

fn deleted(client: &mut RespClient, key: &str) -> bool {
    let end = Instant::now() + NOTICE_LIMIT;
    while Instant::now() < end {
        if client.command(&["DEL", key]).int() == 1 {
            return true;
        }
    }
    false
}

fn oom_count(server: &RedisServer) -> u64 {
    let info = server.client().command(&["INFO", "errorstats"]);
    let line = info
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("errorstat_OOM:count="));
    line.map_or(0, |count| count.parse().unwrap())
}
