//! Server CPU per pair: how many locks one Redis can serve.
//!
//! Raw commands over one socket, thousands at once, so that system calls vanish and only the work
//! on the commands is left. The server's own main thread says what it used.

use std::thread;
use std::time::Duration;

use crate::clock::main_thread_cpu_ns;
use crate::contender::TTL;
use crate::floor::COMPARE_AND_DELETE;
use crate::pipe::{Batch, Pipe};
use crate::rounds::{Entry, interleave_often};
use crate::scripts::{self, NATIVE, REDISSON};
use crate::setting::Setting;
use crate::table::{Row, Target, Unit};

/// Names that are taken one after the other and then released.
const NAMES: usize = 64;
/// How often that is done in one batch.
const REPEATS: usize = 50;
/// Batches per round, everybody in turn, of which the cheapest counts: whatever else happens only
/// adds.
const BATCHES: usize = 25;
/// After the last reply the server still goes back to sleep, which belongs to the batch.
const SETTLE: Duration = Duration::from_micros(300);

/// What Redisson 3 sends to lock and to unlock, command by command. Its text is our own.
const REDISSON_3_LOCK: &str = "\
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1) \
    redis.call('pexpire', KEYS[1], ARGV[1]) \
    return nil \
end \
return redis.call('pttl', KEYS[1])";
const REDISSON_3_UNLOCK: &str = "\
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end \
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1) \
if count > 0 then \
    redis.call('pexpire', KEYS[1], ARGV[2]) \
    return 0 \
end \
redis.call('del', KEYS[1]) \
redis.call('publish', KEYS[2], ARGV[1]) \
return 1";

/// The id of a Redisson client and thread.
const REDISSON_OWNER: &str = "3f2a9c1e-1111-2222-3333-444455556666:7";
/// The id of a lease, as long as a real one.
const LEASE: &str = "tenure:0123456789abcdef0123456789abcdef:1:30000";
/// The same in the redisson layout.
const REDISSON_LEASE: &str = "01234567-89ab-cdef-0123-456789abcdef:100030000";
/// Later than any clock shows, in microseconds: an attempt is never late here.
const LATEST_US: &str = "9000000000000000";
/// Later than any clock shows, in milliseconds: where a transaction says when its lease ends.
const END_MS: &str = "9000000000000";
/// Fences that one acquire reserves.
const FENCES: &str = "1";

pub fn measure(setting: &Setting) -> Vec<Row> {
    let mut bench = Bench::open(setting);
    let batches = [
        ("floor", Some(bench.floor())),
        ("native", bench.again()),
        ("native, by script", bench.ours(NATIVE, Layout::Native)),
        ("Redisson 3's scripts", Some(bench.redisson_3())),
        ("redisson", bench.ours(REDISSON, Layout::Redisson)),
    ];
    let has_redisson = batches[4].1.is_some();
    let bench = std::cell::RefCell::new(bench);
    let entries = batches.into_iter().filter_map(|(label, batch)| {
        let (batch, bench) = (batch?, &bench);
        Some(Entry::new(label, move || bench.borrow_mut().micros(&batch)))
    });
    let results = interleave_often("server_cpu", setting.rounds, BATCHES, entries.collect());
    let row = |what: &str, ours: &str, reference: &str, target| {
        let named = |label: &str| results.samples(label, |micros| *micros).least_of(BATCHES);
        let (ours, its) = (named(ours), named(reference));
        Row::ratio(what, (&ours, Unit::Micros), (reference, &its), target)
    };
    let reference = "Redisson 3's scripts";
    let mut rows = vec![row(
        "server CPU per pair, native layout",
        "native",
        "floor",
        Target::AtMost(1.7),
    )];
    let what = "server CPU per pair, redisson layout";
    rows.push(if has_redisson {
        row(what, "redisson", reference, Target::AtMost(1.2))
    } else {
        Row::missing(what, "not built yet")
    });
    rows.push(row(
        "server CPU per pair, native layout",
        "native",
        reference,
        Target::None,
    ));
    rows.push(row(
        "server CPU per pair, native layout, by script",
        "native, by script",
        "floor",
        Target::None,
    ));
    rows
}

/// Whose bytes a lock has in Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Native,
    Redisson,
}

struct Bench {
    pipe: Pipe,
    pid: u32,
    loader: tenure_testkit::RespClient,
}

impl Bench {
    fn open(setting: &Setting) -> Self {
        Self {
            pipe: Pipe::connect(setting.server.addr()),
            pid: setting.server.pid(),
            loader: setting.server.client(),
        }
    }

    /// The server's CPU per pair of one batch, in microseconds.
    fn micros(&mut self, batch: &Batch) -> f64 {
        let before = main_thread_cpu_ns(self.pid);
        self.pipe.run(batch);
        thread::sleep(SETTLE);
        let used = main_thread_cpu_ns(self.pid) - before;
        used as f64 / 1e3 / (NAMES * REPEATS) as f64
    }

    fn load(&mut self, code: &str) -> String {
        self.loader
            .command(&["SCRIPT", "LOAD", code])
            .text()
            .to_owned()
    }

    fn floor(&mut self) -> Batch {
        let release = self.load(COMPARE_AND_DELETE);
        let ttl = ttl_ms();
        batch(
            |batch, name| batch.push(&["SET", name, LEASE, "NX", "PX", &ttl], "+OK"),
            |batch, name| batch.push(&["EVALSHA", &release, "1", name, LEASE], ":1"),
        )
    }

    fn redisson_3(&mut self) -> Batch {
        let (lock, unlock) = (self.load(REDISSON_3_LOCK), self.load(REDISSON_3_UNLOCK));
        let ttl = ttl_ms();
        batch(
            |batch, name| {
                let words = ["EVALSHA", &lock, "1", name, &ttl, REDISSON_OWNER];
                batch.push(&words, "$-1");
            },
            |batch, name| {
                let channel = format!("redisson_lock__channel:{{{name}}}");
                let keys = ["EVALSHA", &unlock, "2", name, &channel];
                batch.push(&[&keys[..], &["0", &ttl, REDISSON_OWNER]].concat(), ":1");
            },
        )
    }

    /// What the library sends for one lock that is free: a transaction to take it, and its script to
    /// release it. See `acquire_batch.rs` in `store/redis`.
    fn again(&mut self) -> Option<Batch> {
        let release = scripts::read(NATIVE, "release.lua")?;
        let release = self.load(&release);
        Some(batch(
            |batch, name| {
                let own = format!("tenure:fences:{{{name}}}");
                batch.push(&["MULTI"], "+OK");
                let set = ["SET", name, LEASE, "NX", "GET", "PXAT", END_MS];
                batch.push(&set, "+QUEUED");
                let words = ["tenure:fences", "MAXLEN", "0", "*", "f", ""];
                batch.push(&[&["XADD"], &words[..]].concat(), "+QUEUED");
                batch.push(&["EXISTS", &own], "+QUEUED");
                batch.push(&["EXEC"], "*3");
                for line in ["$-1", "$", "", ":0"] {
                    batch.expect(line);
                }
            },
            |batch, name| {
                let queue = format!("tenure:queue:{{{name}}}");
                let alive = format!("tenure:alive:{{{name}}}");
                let keys = ["EVALSHA", &release, "3", name, &queue, &alive];
                batch.push(&[&keys[..], &[LEASE]].concat(), ":1");
            },
        ))
    }

    /// The library's own scripts with the arguments that it gives them for a lock that is free and
    /// that nobody waits for: see `acquire_keys` and `release_keys` in `store/redis`.
    fn ours(&mut self, dirs: &[&str], layout: Layout) -> Option<Batch> {
        let acquire = scripts::read(dirs, "acquire.lua")?;
        let release = scripts::read(dirs, "release.lua")?;
        let (acquire, release) = (self.load(&acquire), self.load(&release));
        let lease = match layout {
            Layout::Native => LEASE,
            Layout::Redisson => REDISSON_LEASE,
        };
        let ttl = ttl_ms();
        Some(batch(
            |batch, name| {
                let [counter, own] = match layout {
                    Layout::Native => [
                        "tenure:fences".to_owned(),
                        format!("tenure:fences:{{{name}}}"),
                    ],
                    Layout::Redisson => [(); 2].map(|()| format!("redisson_lock_token:{{{name}}}")),
                };
                let keys = ["EVALSHA", &acquire, "3", name, &counter, &own];
                let arguments = [lease, &ttl, LATEST_US, FENCES];
                batch.push(&[&keys[..], &arguments].concat(), ":");
            },
            |batch, name| {
                let queue = format!("tenure:queue:{{{name}}}");
                let channel = format!("redisson_lock__channel:{{{name}}}");
                let alive = format!("tenure:alive:{{{name}}}");
                let keys = ["EVALSHA", &release, "3", name, &queue, &alive];
                let words = [&keys[..], &[lease, &channel, ""]].concat();
                // Only the redisson layout is told the channel: it has to wake Java's waiters.
                let told = words.len() - if layout == Layout::Native { 2 } else { 0 };
                batch.push(&words[..told], ":1");
            },
        ))
    }
}

/// All names taken, then all released, over and over.
fn batch(acquire: impl Fn(&mut Batch, &str), release: impl Fn(&mut Batch, &str)) -> Batch {
    let names: Vec<String> = (0..NAMES).map(|number| format!("cpu:{number}")).collect();
    let mut batch = Batch::default();
    for _ in 0..REPEATS {
        for name in &names {
            acquire(&mut batch, name);
        }
        for name in &names {
            release(&mut batch, name);
        }
    }
    batch
}

fn ttl_ms() -> String {
    TTL.as_millis().to_string()
}
