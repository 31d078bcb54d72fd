//! The command and all its descendants are dead before another process can hold the lock, by one
//! clock, whatever is stopped or killed. `ROUNDS=200` for more than CI does.
//!
//! The tree ignores TERM, so that it lives for as long as it may; one of it has left the group and
//! the session.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;
use tenure_testkit::{ClientProcess, Proxy, RedisServer, eventually};

use super::{SOON, at, pid, stamper, wait_for_file, warden_of};

/// A tenth of it is what a busy machine may take to kill all.
const TTL: &str = "4";
const ROUNDS: usize = 10;
/// How many rounds of all tests run side by side. Each has a dozen processes: with seventy rounds at
/// once, a machine with two cores was busy starting them for six seconds, and killed nothing in time.
const ABREAST: usize = 12;
/// What `redis_stopped` spreads its pauses over.
const STEPS: usize = 10;
const LOST: i32 = 79;
const INTERNAL: i32 = 70;

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_redis_stopped() {
    rounds(|number| {
        let round = Round::begin(None);
        round.server.pause();
        // From before the lease ends until after it.
        std::thread::sleep(Duration::from_millis(3_700 + 90 * number as u64));
        round.server.resume();
        assert_eq!(round.end(), Some(LOST));
    });
}

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_network_cut() {
    rounds(|_| {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let round = Round::begin(Some((server, proxy.addr())));
        proxy.black_hole();
        assert_eq!(round.end(), Some(LOST));
    });
}

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_wrapper_stopped() {
    rounds(|_| {
        let round = Round::begin(None);
        round.first.pause();
        round.wait_for_second();
        round.first.resume();
        assert_eq!(round.end(), Some(LOST));
    });
}

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_wrapper_killed() {
    rounds(|_| {
        let round = Round::begin(None);
        round.first.kill();
        round.end();
    });
}

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_warden_killed() {
    rounds(|_| {
        let round = Round::begin(None);
        kill(pid(round.warden), Signal::SIGKILL).unwrap();
        assert_eq!(round.end(), Some(INTERNAL));
    });
}

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_warden_stopped() {
    rounds(|_| {
        let round = Round::begin(None);
        kill(pid(round.warden), Signal::SIGSTOP).unwrap();
        assert_eq!(round.end(), Some(INTERNAL));
    });
}

#[tenure_testkit::test]
fn nobody_works_on_while_another_holds_the_lock_warden_stopped_and_network_cut() {
    rounds(|_| {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let round = Round::begin(Some((server, proxy.addr())));
        kill(pid(round.warden), Signal::SIGSTOP).unwrap();
        proxy.black_hole();
        assert_eq!(round.end(), Some(LOST));
    });
}

/// One command that is to be ended, and one that waits for its lock.
struct Round {
    server: RedisServer,
    first: ClientProcess,
    warden: u32,
    second: ClientProcess,
    files: TempDir,
}

impl Round {
    /// Returns when the whole tree is stamping. The first goes by way of an address of its own.
    fn begin(way: Option<(RedisServer, std::net::SocketAddr)>) -> Self {
        let (server, way) = match way {
            Some((server, way)) => (server, Some(way)),
            None => (RedisServer::start(), None),
        };
        let files = tempfile::tempdir().unwrap();
        let url = way.map_or_else(|| server.url(), |way| server.url_by_way_of(way));
        let tree = tree(&files);
        let mut first = at(&url, &["run", "-t", TTL, "n", "-c", &tree]);
        first.current_dir(files.path());
        let first = ClientProcess::spawn(&first);
        for member in members(&files) {
            wait_for_file(&member);
        }
        let warden = warden_of(first.pid());
        let second = files.path().join("second");
        let once = format!("{} {}", stamper::once(&second), stamper::words());
        let second = at(&server.url(), &["run", "-t", TTL, "n", "-c", &once]);
        Self {
            second: ClientProcess::spawn(&second),
            first,
            warden,
            server,
            files,
        }
    }

    fn wait_for_second(&self) {
        let is_done = self.second.wait(SOON * 2);
        let is_done = is_done.is_some_and(|status| status.success());
        assert!(is_done, "{} {}", self.first.stderr(), self.second.stderr());
    }

    /// Checks the stamps, and returns the first's exit code if it was not killed.
    fn end(&self) -> Option<i32> {
        self.wait_for_second();
        let granted = stamper::granted(&self.files.path().join("second"));
        // It waits for its descendants to end. On a crowded machine the kernel may let a killed
        // process wait for a core for many seconds: schedstat showed nine.
        let ended = self.first.wait(SOON * 6).unwrap_or_else(|| {
            panic!("still runs: {}", self.first.stderr());
        });
        // A living process stamps again.
        let is_still = |member: &PathBuf| {
            let before = stamper::last(member);
            !eventually(Duration::from_millis(100), || {
                stamper::last(member) != before
            })
        };
        for member in members(&self.files) {
            let last = stamper::last(&member).unwrap();
            let late = last.saturating_sub(granted) / 1_000;
            let member_name = member.display();
            assert!(last < granted, "`{member_name}` worked on for {late} µs");
            assert!(is_still(&member), "`{}` is alive", member.display());
        }
        ended.code()
    }
}

fn members(files: &TempDir) -> [PathBuf; 3] {
    ["child", "grandchild", "stray"].map(|name| files.path().join(name))
}

/// The command: a shell with a stamper, another shell with a stamper, and one in a session of its
/// own, whose parent has ended.
fn tree(files: &TempDir) -> String {
    let stamp = |path: &PathBuf| format!("{} {}", stamper::file(path), stamper::words());
    let [child, grandchild, stray] = members(files);
    let (child, grandchild, stray) = (stamp(&child), stamp(&grandchild), stamp(&stray));
    let quoted = |line: &str| line.replace('\'', "'\\''");
    format!(
        "trap '' TERM; sh -c '{}; true' & setsid -f sh -c '{}; true'; {child}; wait",
        quoted(&grandchild),
        quoted(&stray)
    )
}

/// Runs the rounds, some at a time.
fn rounds(round: impl Fn(usize) + Sync) {
    let count = std::env::var("ROUNDS").ok();
    let count = count.map_or(ROUNDS, |count| count.parse().unwrap());
    for first in (0..count).step_by(STEPS) {
        std::thread::scope(|scope| {
            for number in first..count.min(first + STEPS) {
                let round = &round;
                scope.spawn(move || {
                    let _place = Place::take();
                    round(number % STEPS);
                });
            }
        });
    }
}

static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

/// The right to run a round now, given back when it is dropped.
struct Place;

impl Place {
    fn take() -> Self {
        let taken = TAKEN.lock().unwrap();
        *LEFT.wait_while(taken, |taken| *taken == ABREAST).unwrap() += 1;
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap() -= 1;
        LEFT.notify_one();
    }
}
