//! `tenure ls`, `show`, `watch`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::blocking::{Locks, Redlock, Tenure};
use tenure_testkit::{Cluster, RedisServer, RedlockNodes, eventually};

use crate::masks::{host, without, without_digits};
use crate::scripts::{Killed, at, run_at};

const SOON: Duration = Duration::from_secs(20);
/// A ttl that is not renewed while the server counts.
const HOUR: Duration = Duration::from_hours(1);
const VARYING: [&str; 9] = [
    "lease_id",
    "fence",
    "held_ms",
    "since",
    "left_ms",
    "expires_at",
    "client",
    "pid",
    "version",
];

fn backup(url: &str) -> Tenure {
    let builder = tenure::Tenure::builder(url).name("web");
    let builder = builder
        .about("command", "backup.sh")
        .about("user", "deploy");
    Tenure::connect_with(builder).unwrap()
}

/// The same in a few words.
fn whoever_tests() -> String {
    format!("{}:{} (web, deploy, backup.sh)", host(), std::process::id())
}

/// Waits until so many locks are listed with their holders, and so many callers wait.
fn are_listed(tenure: &Locks, locks: usize, waiting: u64) {
    let whole = || {
        let listed = tenure.list(|_| true).unwrap().locks;
        let known = listed.iter().filter(|lock| lock.held_for.is_some()).count();
        let waiters: u64 = listed.iter().map(tenure::Listed::waiting).sum();
        known == locks && waiters == waiting
    };
    assert!(eventually(SOON, whole), "{:?}", tenure.list(|_| true));
}

#[tenure_testkit::test]
fn locks_are_listed_with_holders_and_waiters() {
    let server = RedisServer::start();
    let url = server.url();
    let ours = backup(&url);
    let guards = ["order:2", "order:1", "nightly"].map(|name| ours.lock(name).acquire().unwrap());
    let other = Tenure::connect(&url).unwrap();
    let waiting = thread::spawn(move || other.lock("order:1").wait(SOON).acquire().unwrap());
    are_listed(ours.as_locks(), 3, 1);

    let ended = run_at(&url, &["ls", "order:*"]);
    ended.ended_with(0);
    let who = format!("{}:{}", host(), std::process::id());
    assert_eq!(
        without_digits(&ended.stdout.replace(&who, "HOLDER")),
        "NAME  HOLDER  HELD  LEFT  WAITING  FENCE\n\
         order:#  HOLDER (web, deploy, backup.sh)  #.#s  ##.#s  #  ################\n\
         order:#  HOLDER (web, deploy, backup.sh)  #.#s  ##.#s  #  ################"
    );
    assert_eq!(ended.stderr, "", "a note is for people");
    let names = |line: &str| line.split(' ').next().unwrap().to_owned();
    let all = run_at(&url, &["ls", "-l"]);
    let listed: Vec<String> = all.stdout.lines().map(names).collect();
    assert_eq!(listed, ["NAME", "nightly", "order:1", "order:2"]);
    all.says(
        ours.lock("nightly")
            .holder()
            .unwrap()
            .unwrap()
            .lease
            .as_str(),
    );

    let ended = run_at(&url, &["ls", "order:?", "--json"]);
    assert_eq!(ended.stderr, "");
    let who = whoever_tests();
    let client = "{\"client\":#,\"host\":\"HOST\",\"pid\":#,\"name\":\"web\",\"about\":{\"command\":\
                  \"backup.sh\",\"user\":\"deploy\"},\"version\":#}";
    let lock = format!(
        "{{\"name\":\"NAME\",\"held\":true,\"who\":\"WHO\",\"lease_id\":#,\"fence\":#,\"held_ms\":#,\"since\":#,\
         \"ttl_ms\":30000,\"left_ms\":#,\"expires_at\":#,\"holder\":{client},\"foreign\":false,\
         \"meta\":{{}},"
    );
    let waited_for = "\"waiting\":1,\"waiters\":[{\"client\":#,\"host\":\"HOST\",\"pid\":#,\"name\":null,\
                      \"about\":{},\"version\":#,\"waiting\":1}]}";
    let expected = format!(
        "{{\"locks\":[{}{waited_for},{}\"waiting\":0,\"waiters\":[]}}],\"more_leases\":0}}\n",
        lock.replace("NAME", "order:1"),
        lock.replace("NAME", "order:2"),
    );
    assert_eq!(
        without(&ended.stdout, &VARYING),
        expected.replace("WHO", &who).replace("HOST", &host())
    );
    drop(guards);
    waiting.join().unwrap().release().unwrap();
}

/// What it said of itself outlives it by minutes; the lock's own queue knows sooner that it has died.
#[tenure_testkit::test]
fn a_killed_waiter_is_listed_for_seconds_only() {
    let server = RedisServer::start();
    let url = server.url();
    let ours = Tenure::connect(&url).unwrap();
    let guard = ours.lock("n").acquire().unwrap();
    let mut waiting = Killed(at(&url, &["run", "n", "--", "true"]).spawn().unwrap());
    let shown = |waiting: usize| {
        let expected = format!("\"waiting\":{waiting},");
        let says = |command: &[&str]| run_at(&url, command).stdout.contains(&expected);
        says(&["ls", "--json"]) && says(&["show", "n", "--json"])
    };
    assert!(eventually(SOON, || shown(1)), "it does not wait");
    waiting.0.kill().unwrap();
    waiting.0.wait().unwrap();
    // The server's own clock says when it counts as dead: then it is gone from both.
    let mut redis = server.client();
    let is_dead = || {
        let now: i64 = redis.command(&["TIME"]).array()[0].text().parse().unwrap();
        let dead = (now * 1_000).to_string();
        let alive = ["ZCOUNT", "tenure:alive:{n}", &dead, "+inf"];
        redis.command(&alive).int() == 0
    };
    assert!(
        eventually(Duration::from_secs(9), is_dead),
        "it still lives"
    );
    assert!(shown(0), "{}", run_at(&url, &["ls", "--json"]));
    guard.release().unwrap();
}

#[tenure_testkit::test]
fn where_nothing_is_held_nothing_is_listed() {
    let server = RedisServer::start();
    let ended = run_at(&server.url(), &["ls"]);
    ended.ended_with(0);
    assert_eq!(ended.stdout + &ended.stderr, "", "a note is for people");
    let ended = run_at(&server.url(), &["ls", "--json"]);
    assert_eq!(ended.stdout, "{\"locks\":[],\"more_leases\":0}\n");
    let ended = run_at(&server.url(), &["show", "n"]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "`n` is free\n");
    let ended = run_at(&server.url(), &["show", "n", "--json"]);
    assert_eq!(
        ended.stdout,
        "{\"name\":\"n\",\"held\":false,\"who\":\"nobody\",\"lease_id\":null,\"fence\":null,\"held_ms\":null,\
         \"since\":null,\"ttl_ms\":null,\"left_ms\":null,\"expires_at\":null,\"holder\":null,\
         \"foreign\":false,\"meta\":{},\"waiting\":0,\"waiters\":[]}\n"
    );
}

#[tenure_testkit::test]
fn a_lock_is_shown_with_everything_that_is_known() {
    let server = RedisServer::start();
    let ours = backup(&server.url());
    let guard = ours.lock("n").meta("job", "a\u{1b}[2Jb").acquire().unwrap();
    let other = Tenure::connect(server.url()).unwrap();
    let waiting = thread::spawn(move || other.lock("n").wait(SOON).acquire().unwrap());
    are_listed(ours.as_locks(), 1, 1);
    let ended = run_at(&server.url(), &["show", "n"]);
    ended.ended_with(0);
    let shown = ended.stdout.replace(guard.lease_id().as_str(), "LEASE");
    let shown = shown.replace(&format!("{}:{}", host(), std::process::id()), "HOLDER");
    assert_eq!(
        without_digits(&shown),
        "`n` is held\n  Holder:  HOLDER (web, deploy, backup.sh)\n  Lease:  LEASE\n  \
         Fence:  ################\n  Held:  #.#s, since ####-##-##T##:##:##.###Z\n  \
         Left:  ##.#s of ##.#s unless renewed\n  About:  command=backup.sh, user=deploy\n  \
         Meta:  job=a\\u{#b}[#Jb\n  Waiting:  #\n  # at HOLDER"
    );
    ended.says(&format!("Fence:    {}\n", guard.fence()));
    drop(guard);
    waiting.join().unwrap().release().unwrap();
}

#[tenure_testkit::test]
fn foreign_locks_are_shown_by_name() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.command(&["SET", "theirs", "abc", "PX", "60000"]);
    client.command(&["SET", "string", "7"]);
    let ended = run_at(&server.url(), &["show", "theirs"]);
    ended.ended_with(0);
    assert_eq!(
        without_digits(&ended.stdout),
        "`theirs` is held\n  Holder:  another library\n  Lease:  abc\n  Left:  ##.#s\n  Waiting:  #"
    );
    let ended = run_at(&server.url(), &["show", "string"]);
    ended.ended_with(0);
    ended.says("Left:     no expiry, so it may not be a lock\n");
    // A Tenure client waits for it: then it is listed.
    let ours = Tenure::connect(server.url()).unwrap();
    let theirs = ours.clone();
    let waiting = thread::spawn(move || theirs.lock("theirs").wait(SOON).acquire().unwrap());
    are_listed(ours.as_locks(), 0, 1);
    let ended = run_at(&server.url(), &["ls"]);
    assert_eq!(
        without_digits(&ended.stdout),
        "NAME  HOLDER  HELD  LEFT  WAITING  FENCE\ntheirs  another library  -  ##.#s  #  -"
    );
    client.command(&["DEL", "theirs"]);
    waiting.join().unwrap().release().unwrap();
}

#[tenure_testkit::test]
fn a_thousand_locks_among_other_keys_are_listed_without_a_search() {
    let server = RedisServer::start();
    let ours = Tenure::connect(server.url()).unwrap();
    let names = (0..1_000).map(|number| format!("lock:{number:04}"));
    let _guards: Vec<_> = names
        .map(|name| ours.lock(name).ttl(HOUR).acquire().unwrap())
        .collect();
    let fill = "for i = 1, 100000 do redis.call('SET', 'other:' .. i, i) end";
    server.client().command(&["EVAL", fill, "0"]);
    are_listed(ours.as_locks(), 1_000, 0);
    server.reset_stats();
    let ended = run_at(&server.url(), &["ls", "--json"]);
    ended.ended_with(0);
    assert_eq!(ended.stdout.matches("\"name\":\"lock:").count(), 1_000);
    for search in ["scan", "keys", "sscan", "hscan", "zscan", "randomkey"] {
        assert_eq!(server.command_calls(search), 0, "{search}");
    }
    // Four commands inside each script, one client's record, and what connecting and that client's
    // own record cost.
    let (evals, hashes) = (
        server.command_calls("evalsha"),
        server.command_calls("hgetall"),
    );
    assert!((900..=1_050).contains(&evals), "{evals}");
    assert!((1_000..=1_010).contains(&hashes), "{hashes}");
}

#[tenure_testkit::test]
fn locks_are_listed_on_a_majority_and_in_a_cluster() {
    let nodes = RedlockNodes::start();
    let cluster = Cluster::builder().steady().start();
    let redlock = Redlock::connect(nodes.urls()).unwrap();
    let clustered = Tenure::connect(cluster.url()).unwrap();
    let names = ["a", "b", "c", "d", "e"];
    let _guards = names.map(|name| {
        let one = redlock.lock(name).acquire().unwrap();
        (one, clustered.lock(name).acquire().unwrap())
    });
    for (urls, locks) in [
        (nodes.urls().join(" "), redlock.as_locks()),
        (cluster.url(), clustered.as_locks()),
    ] {
        are_listed(locks, 5, 0);
        let ended = run_at(&urls, &["ls"]);
        ended.ended_with(0);
        let listed: Vec<&str> = ended.stdout.lines().map(|line| &line[..1]).collect();
        assert_eq!(listed, ["N", "a", "b", "c", "d", "e"], "{ended}");
        let ended = run_at(&urls, &["show", "c"]);
        ended.says("Holder:");
        ended.says(&std::process::id().to_string());
    }
}

/// A running `tenure watch`, and what it has said.
struct Watch {
    child: Killed,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

fn watch(url: &str, arguments: &[&str]) -> Watch {
    let mut command = at(url, &[&["watch"], arguments].concat());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let stdout = lines(child.0.stdout.take().unwrap());
    let stderr = lines(child.0.stderr.take().unwrap());
    Watch {
        child,
        stdout,
        stderr,
    }
}

fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (said, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl Watch {
    fn next(&self) -> String {
        self.stdout.recv_timeout(SOON).expect("another line")
    }

    fn ends_by(mut self, signal: Signal) -> Option<i32> {
        let pid = self.child.0.id().try_into().unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        self.child.0.wait().unwrap().code()
    }
}

#[tenure_testkit::test]
fn what_happens_to_locks_is_told_to_programs() {
    let server = RedisServer::start();
    let ours = backup(&server.url());
    let before = ours.lock("n:before").acquire().unwrap();
    are_listed(ours.as_locks(), 1, 0);
    let watch = watch(&server.url(), &["n:*", "--json"]);
    let client = "{\"client\":#,\"host\":\"HOST\",\"pid\":#,\"name\":\"web\",\"about\":{\"command\":\
                  \"backup.sh\",\"user\":\"deploy\"},\"version\":#}";
    let expect = |event: &str, name: &str, holder: &str, waiting: u64| {
        let expected = format!(
            "{{\"at\":#,\"event\":\"{event}\",\"name\":\"{name}\",\"lease_id\":#,\"fence\":#,\
             \"who\":\"WHO\",\"holder\":{holder},\"waiting\":{waiting},\"held_ms\":#}}"
        );
        let expected = expected.replace("WHO", &whoever_tests());
        let said = without(&watch.next(), &[&VARYING[..], &["at"]].concat());
        assert_eq!(said, expected.replace("HOST", &host()));
    };
    expect("held", "n:before", client, 0);
    let _not_wanted = ours.lock("other").acquire().unwrap();
    let guard = ours.lock("n:1").acquire().unwrap();
    expect("taken", "n:1", client, 0);
    let other = Tenure::connect(server.url()).unwrap();
    let waiting = thread::spawn(move || other.lock("n:1").wait(SOON).acquire().unwrap());
    expect("waiting", "n:1", client, 1);
    guard.release().unwrap();
    let next = waiting.join().unwrap();
    // The record of its new holder is up to half a second late: no watcher must take the lock
    // for free.
    let expect_of_next = |event: &str| {
        let said = watch.next();
        let expected = format!("\"event\":\"{event}\",\"name\":\"n:1\",\"lease_id\":");
        assert!(said.contains(&expected), "{said}");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["lease_id"], next.lease_id().as_str());
    };
    expect_of_next("handed_on");
    expect_of_next("waiting");
    next.release().unwrap();
    let ended = watch.next();
    assert!(
        ended.contains("\"event\":\"ended\",\"name\":\"n:1\""),
        "{ended}"
    );
    before.release().unwrap();
    expect("ended", "n:before", client, 0);
    assert_eq!(watch.ends_by(Signal::SIGINT), Some(130));
}

#[tenure_testkit::test]
fn what_happens_to_locks_is_told_to_people() {
    let server = RedisServer::start();
    let ours = backup(&server.url());
    let watch = watch(&server.url(), &[]);
    assert_eq!(
        watch.stderr.recv_timeout(SOON).unwrap(),
        "tenure: polling twice a second; misses locks held for less than half a second"
    );
    let guard = ours.lock("n").acquire().unwrap();
    let who = format!("{}:{}", host(), std::process::id());
    let next = || without_digits(&watch.next().replace(&who, "HOLDER"));
    assert_eq!(
        next(),
        "####-##-##T##:##:##.###Z taken  n: HOLDER (web, deploy, backup.sh), fence ################"
    );
    server.kill();
    let away = watch.stderr.recv_timeout(SOON).unwrap();
    assert!(
        away.starts_with("tenure: ") && away.ends_with("; retrying"),
        "{away}"
    );
    server.restart_empty();
    let back = watch.stderr.recv_timeout(SOON).unwrap();
    assert!(
        back.starts_with("tenure: the server is back after "),
        "{back}"
    );
    assert_eq!(
        next(),
        "####-##-##T##:##:##.###Z ended  n: HOLDER (web, deploy, backup.sh), after #.#s, fence \
         ################"
    );
    drop(guard);
    assert_eq!(watch.ends_by(Signal::SIGTERM), Some(143));
}

#[tenure_testkit::test]
fn a_watch_ends_when_nobody_reads_though_nothing_happens() {
    let server = RedisServer::start();
    let mut command = at(&server.url(), &["watch"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    drop(child.0.stdout.take());
    let mut ended = || child.0.try_wait().unwrap();
    assert!(eventually(SOON, || ended().is_some()));
    assert_eq!(ended().unwrap().code(), Some(0));
}

/// Any client of the server can write a record.
#[tenure_testkit::test]
fn counts_that_cannot_be_are_no_reason_to_fail() {
    let server = RedisServer::start();
    let mut redis = server.client();
    redis.command(&["SET", "n", "theirs", "PX", "60000"]);
    let far = "99999999999999";
    for client in [
        "3f2a9c1e7b1d8c2e9d3f444455556666",
        "3f2a9c1e7b1d8c2e9d3f444455556667",
    ] {
        let record = format!("tenure:client:{client}");
        let most = u64::MAX.to_string();
        redis.command(&["HSET", &record, "host", "h", "wait:n", &most, "more", &most]);
        redis.command(&["ZADD", "tenure:clients", far, client]);
        let place = format!("tenure:{client}:1:30000");
        redis.command(&["ZADD", "tenure:queue:{n}", "1", &place]);
    }
    for arguments in [&["ls", "--json"] as &[&str], &["ls"], &["show", "n"]] {
        let ended = run_at(&server.url(), arguments);
        ended.ended_with(0);
        ended.says(&u64::MAX.to_string());
    }
}

#[tenure_testkit::test]
fn a_lock_that_may_not_be_seen_does_not_hide_the_others() {
    let rules = "on >pw ~app:* ~tenure:* &* +@all";
    let server = RedisServer::builder().user("worker", rules).start();
    let ours = Tenure::connect(server.url()).unwrap();
    let _guards = ["app:n", "other:x"].map(|name| ours.lock(name).acquire().unwrap());
    are_listed(ours.as_locks(), 2, 0);
    let mut command = crate::command::tenure(&["ls"]);
    command.env("TENURE_URL", format!("redis://worker:pw@{}", server.addr()));
    let ended = crate::command::run(&mut command);
    ended.ended_with(0);
    ended.says("app:n");
    assert!(!ended.stdout.contains("other:x"), "{ended}");
}

/// RFC 3339 has no later year than 9999, but a key of another program can expire later.
#[tenure_testkit::test]
fn a_lock_that_expires_after_the_year_9999_is_shown() {
    let server = RedisServer::start();
    let (url, far) = (server.url(), "9000000000000000");
    server.run(&["SET", "far", "me", "PX", far]);
    let ended = run_at(&url, &["show", "far", "--json"]);
    ended.ended_with(0);
    ended.says("\"expires_at\":\"9999-12-31T23:59:59.000Z\"");
    run_at(&url, &["show", "far"]).ended_with(0);
    let ours = backup(&url);
    let waiting = thread::spawn(move || ours.lock("far").wait(SOON).acquire());
    let listed = || run_at(&url, &["ls", "--json"]);
    assert!(eventually(SOON, || listed().stdout.contains("\"far\"")));
    listed().ended_with(0);
    server.run(&["DEL", "far"]);
    drop(waiting.join().unwrap());
}

#[tenure_testkit::test]
fn a_latch_is_shown_as_what_it_is() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).unwrap();
    tenure.latch("n", 2).arrive("one").unwrap();
    let at_server = |arguments: &[&str]| {
        let mut command = crate::command::tenure(arguments);
        crate::command::run(command.env("TENURE_URL", server.url()))
    };
    at_server(&["show", "n"]).says("closed latch of 2 parties");
    let refused = at_server(&["run", "-n", "n", "--", "true"]);
    refused.ended_with(64);
    refused.complains("it is a latch");
    tenure.latch("n", 2).arrive("two").unwrap();
    at_server(&["show", "n"]).says("open latch of 2 parties");
}
