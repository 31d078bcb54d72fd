//! `tenure demo pitfalls`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tenure_testkit::{Cluster, RedisServer, eventually};

use crate::command::{Ended, run, tenure};
use crate::leftovers::keys_left;

/// The pitfalls that start servers of their own.
const OF_SERVERS: &str = "one-redis,promoted-replica,redlock-in-sequence";

/// The names, as the command itself lists them.
fn names() -> Vec<String> {
    let listed = run(&mut tenure(&["demo", "pitfalls", "--list"]));
    listed.ended_with(0);
    let headings = listed.stdout.lines().filter(|line| !line.starts_with(' '));
    let name = |line: &str| line.split_once(": ").unwrap().0.to_owned();
    headings.map(name).collect()
}

/// The lines of one pitfall, without its heading.
#[track_caller]
fn lines_of<'a>(ended: &'a Ended, name: &str) -> Vec<&'a str> {
    let mut lines = ended.stdout.lines();
    let heading = format!("{name}: ");
    let found = lines.find(|line| line.starts_with(&heading));
    assert!(found.is_some(), "no `{name}` in\n{ended}");
    lines.take_while(|line| line.starts_with("   ")).collect()
}

/// Every mistake did its damage, and none with Tenure.
#[track_caller]
fn shows_all(ended: &Ended) {
    ended.ended_with(0);
    let names = names();
    assert_eq!(names.len(), 22);
    for name in &names {
        let lines = lines_of(ended, name);
        assert_eq!(lines.len(), 2, "{name}: {lines:?}\n{ended}");
        assert!(lines[0].starts_with("   mistake  "), "{lines:?}");
        assert!(lines[1].starts_with("   tenure   "), "{lines:?}");
    }
    assert!(!ended.stdout.contains("DID NOT"), "{ended}");
    ended.says("22 of 22 mistakes shown, 22 of 22 avoided with Tenure");
    assert!(ended.took < Duration::from_secs(30), "{ended}");
}

/// The keys on a server that are there for good.
/// What is left on a server, but for what clients say of leases that they gave away: that ends with
/// those.
fn keys(server: &RedisServer) -> Vec<String> {
    let keys = keys_left(server).into_iter();
    keys.filter(|key| !key.starts_with("tenure:client"))
        .collect()
}

#[tenure_testkit::test]
fn every_mistake_shows_inside_the_process_and_none_with_tenure() {
    let files = TempDir::new().unwrap();
    let mut command = tenure(&["demo", "pitfalls"]);
    let ended = run(command.env("TMPDIR", files.path()));
    shows_all(&ended);
    ended.says("no server needed");
    assert!(!ended.stdout.contains('\x1b'), "colour in a file\n{ended}");
    assert_eq!(ended.stderr, "");
    assert_is_empty(files.path());
}

#[tenure_testkit::test]
fn every_mistake_shows_on_a_server_and_nothing_is_left_there() {
    let server = RedisServer::builder().password("secret").start();
    server.client().command(&["SET", "order:1001", "mine"]);
    let ended = run(tenure(&["demo", "pitfalls"]).env("TENURE_URL", server.url()));
    shows_all(&ended);
    ended.says(&server.addr().to_string());
    ended.keeps("secret");
    assert_eq!(keys(&server), ["order:1001"]);
}

#[tenure_testkit::test]
fn every_mistake_shows_on_a_cluster_and_nothing_is_left_there() {
    let cluster = Cluster::builder().steady().start();
    let ended = run(tenure(&["demo", "pitfalls"]).env("TENURE_URL", cluster.url()));
    shows_all(&ended);
    for server in cluster.servers() {
        let is_empty = eventually(Duration::from_secs(2), || keys(server).is_empty());
        assert!(is_empty, "{:?}", keys(server));
    }
}

#[tenure_testkit::test]
fn what_needs_servers_says_that_there_are_none_and_the_rest_is_played() {
    let only = format!("{OF_SERVERS},lock-again");
    let mut command = tenure(&["demo", "pitfalls", "--only", &only]);
    let ended = run(command.env("PATH", ""));
    ended.ended_with(0);
    for name in OF_SERVERS.split(',') {
        let told = "   skipped  `redis-server` not found in PATH: install Redis to run this one";
        assert_eq!(lines_of(&ended, name), [told], "{ended}");
    }
    assert_eq!(lines_of(&ended, "lock-again").len(), 2, "{ended}");
    ended.says("1 of 1 mistakes shown, 1 of 1 avoided with Tenure");
    ended.says("; 3 skipped");
}

#[tenure_testkit::test]
fn only_what_was_asked_for_is_played_in_the_order_of_the_list() {
    let only = "one-flag,own-clock";
    let ended = run(&mut tenure(&["demo", "pitfalls", "--only", only]));
    ended.ended_with(0);
    let at = |name: &str| ended.stdout.find(&format!("\n{name}: "));
    assert!(at("own-clock").is_some(), "{ended}");
    assert!(at("own-clock") < at("one-flag"), "{ended}");
    ended.says("2 of 2 mistakes shown");
}

#[tenure_testkit::test]
fn a_name_that_is_none_is_refused_with_those_there_are() {
    let ended = run(&mut tenure(&["demo", "pitfalls", "--only", "fixed-leash"]));
    ended.ended_with(64);
    ended.complains("invalid value 'fixed-leash' for '--only");
    for name in names() {
        ended.complains(&name);
    }
    assert_eq!(ended.stdout, "");
}

#[tenure_testkit::test]
fn a_wrong_command_line_or_server_ends_as_the_demo_does() {
    let two = "redis://127.0.0.1:1/ redis://127.0.0.1:2/";
    let ended = run(tenure(&["demo", "pitfalls"]).env("TENURE_URL", two));
    ended.ended_with(64);
    ended.complains("tenure: the pitfalls need one server: give one URL");
    let wrong = "http://me:secret@h/";
    let ended = run(tenure(&["demo", "pitfalls"]).env("TENURE_URL", wrong));
    ended.ended_with(78);
    ended.complains("tenure: cannot play the pitfalls on `");
    ended.keeps("secret");
    let server = RedisServer::start();
    server.kill();
    let ended = run(&mut tenure(&["demo", "pitfalls", "--url", &server.url()]));
    ended.ended_with(69);
    ended.complains(&server.addr().to_string());
}

#[tenure_testkit::test]
fn a_server_that_dies_meanwhile_ends_it_with_69() {
    let (server, files) = (RedisServer::start(), TempDir::new().unwrap());
    let mut child = begin(&["--url", &server.url()], files.path());
    assert!(eventually(Duration::from_secs(5), || !keys(&server).is_empty()));
    server.kill();
    let (code, told) = end_of(&mut child, Duration::from_secs(20));
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("tenure: cannot play the pitfall `"), "{told}");
    assert_is_empty(files.path());
}

#[tenure_testkit::test]
fn ctrl_c_ends_the_servers_and_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (server, files) = (RedisServer::start(), TempDir::new().unwrap());
        let mut child = begin(&["--url", &server.url()], files.path());
        let pid = child.id();
        // Several are running, and one of them hangs.
        let started = eventually(Duration::from_secs(10), || {
            let servers = children_of(pid);
            servers.len() > 3 && servers.iter().any(|child| state_of(*child) == Some('T'))
        });
        assert!(started, "{:?}", children_of(pid));
        let servers = children_of(pid);
        kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
        let (code, told) = end_of(&mut child, Duration::from_secs(5));
        assert_eq!(code, Some(130), "{told}");
        assert!(told.contains("interrupted: "), "{told}");
        for server in servers {
            assert_eq!(state_of(server), None, "process {server} outlived the demo");
        }
        assert_is_empty(files.path());
        assert_eq!(keys(&server), Vec::<String>::new());
    }
}

/// Starts the pitfalls and does not wait for them.
fn begin(arguments: &[&str], files: &Path) -> Child {
    let mut command: Command = tenure(&["demo", "pitfalls"]);
    command.args(arguments).env("TMPDIR", files);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The exit code and what was said on stderr; killed if it does not end by itself.
fn end_of(child: &mut Child, limit: Duration) -> (Option<i32>, String) {
    let mut status = None;
    eventually(limit, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        child.kill().unwrap();
    }
    let told = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    (status.and_then(|status| status.code()), told)
}

/// The processes that this one has started, whichever of its threads did.
fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = threads.flat_map(|thread| {
        let children = fs::read_to_string(thread.unwrap().path().join("children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<u32>>()
    });
    children.collect()
}

/// How a process is: `S` asleep, `T` stopped; none if it is gone.
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[track_caller]
fn assert_is_empty(dir: &Path) {
    let left: Vec<_> = fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
