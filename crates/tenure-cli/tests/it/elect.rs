//! `tenure elect` and `tenure leader`.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::blocking::Tenure;
use tenure_testkit::{ClientProcess, RedisServer, eventually};

use crate::command;

const SOON: Duration = Duration::from_secs(30);

fn on(server: &RedisServer, arguments: &[&str]) -> Command {
    let mut command = command::tenure(arguments);
    command.env("TENURE_URL", server.url());
    command
}

fn start(server: &RedisServer, arguments: &[&str]) -> ClientProcess {
    ClientProcess::spawn(&on(server, arguments))
}

fn leader(server: &RedisServer, options: &[&str]) -> command::Ended {
    command::run(&mut on(server, &[&["leader", "n"], options].concat()))
}

/// Starts a candidate whose command says when it runs, and then sleeps.
fn candidate(server: &RedisServer, value: &str, options: &[&str]) -> ClientProcess {
    let script = "echo running $TENURE_FENCE; exec sleep 60";
    let words = ["n", "--", "sh", "-c", script];
    start(
        server,
        &[&["elect", "--value", value], options, &words].concat(),
    )
}

/// The term that the command of a leader was given.
fn term(process: &ClientProcess) -> u64 {
    let line = process.expect_line(SOON);
    let term = line.strip_prefix("running ");
    term.unwrap_or_else(|| panic!("said `{line}`"))
        .parse()
        .unwrap()
}

#[track_caller]
fn code(process: &ClientProcess) -> i32 {
    let status = process.wait(SOON);
    let status = status.unwrap_or_else(|| panic!("did not end; {}", process.stderr()));
    status.code().expect("it was not killed")
}

fn send(process: &ClientProcess, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap());
    kill(pid, signal).unwrap();
}

fn waits(server: &RedisServer) -> bool {
    let queue = server.client().command(&["ZCARD", "tenure:queue:{n}"]);
    queue.int() == 1
}

#[tenure_testkit::test]
fn the_command_runs_while_it_leads_and_its_exit_code_is_passed_on() {
    let server = RedisServer::start();
    let words = ["elect", "n", "--", "sh", "-c", "echo $TENURE_NAME; exit 7"];
    let ended = command::run(&mut on(&server, &words));
    ended.ended_with(7);
    assert_eq!(ended.stdout, "n\n");
    assert_eq!(ended.stderr, "");
    leader(&server, &[]).ended_with(1);
}

#[tenure_testkit::test]
fn the_next_candidate_leads_when_the_first_resigns() {
    let server = RedisServer::start();
    let first = candidate(&server, "one", &[]);
    let first_term = term(&first);
    let ended = leader(&server, &[]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "one\n");
    let second = candidate(&server, "two", &[]);
    assert!(eventually(SOON, || waits(&server)));
    send(&first, Signal::SIGTERM);
    assert_eq!(code(&first), 143);
    assert!(term(&second) > first_term);
    let ended = leader(&server, &["--json"]);
    ended.ended_with(0);
    ended.says("\"value\":\"two\"");
    ended.says("\"leads\":true");
    leader(&server, &["-v"]).says("two leads, term ");
    send(&second, Signal::SIGINT);
    assert_eq!(code(&second), 130);
    let ended = leader(&server, &[]);
    ended.ended_with(1);
    ended.complains("nobody leads `n`");
    assert_eq!(ended.stdout, "");
}

/// A candidate that is asked to end leaves the queue.
#[tenure_testkit::test]
fn a_candidate_can_be_stopped_while_it_waits() {
    let server = RedisServer::start();
    let first = candidate(&server, "one", &[]);
    term(&first);
    let second = candidate(&server, "two", &[]);
    assert!(eventually(SOON, || waits(&server)));
    send(&second, Signal::SIGTERM);
    assert_eq!(code(&second), 143);
    assert!(!waits(&server));
}

#[tenure_testkit::test]
fn a_leader_that_lost_is_stopped_and_campaigns_again() {
    let server = RedisServer::start();
    let process = candidate(&server, "one", &[]);
    let first = term(&process);
    // Longer than a second, so that it is watched.
    std::thread::sleep(Duration::from_millis(1_500));
    let tenure = Tenure::connect(server.url()).unwrap();
    let holder = tenure.lock("n").holder().unwrap().unwrap();
    tenure.force_release("n", &holder.lease).unwrap();
    assert!(term(&process) > first, "elected again, and run again");
    let complains = || process.stderr().contains("lost `n`");
    assert!(eventually(SOON, complains), "{}", process.stderr());
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 143);
}

/// Its machine is gone: the lease ends, and the next one leads.
#[tenure_testkit::test]
fn a_killed_leader_is_succeeded_and_its_command_is_gone() {
    let server = RedisServer::start();
    let first = candidate(&server, "one", &["--ttl", "2"]);
    let fence = format!("TENURE_FENCE={}", term(&first));
    let runs = |entry: std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == fence.as_bytes())
    };
    let is_left = || std::fs::read_dir("/proc").unwrap().flatten().any(runs);
    assert!(is_left(), "its command runs");
    let second = candidate(&server, "two", &["--ttl", "2"]);
    assert!(eventually(SOON, || waits(&server)));
    first.kill();
    let killed = Instant::now();
    term(&second);
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert!(!is_left(), "its command still runs");
    leader(&server, &[]).says("two");
}

#[tenure_testkit::test]
fn a_command_is_restarted_if_asked() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs");
    let file = file.display();
    // It fails twice, then succeeds.
    let script = format!("echo x >> {file}; test $(wc -l < {file}) = 3");
    let words = [
        "elect",
        "--restart",
        "failure",
        "n",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let ended = command::run(&mut on(&server, &words));
    ended.ended_with(0);
    let runs = std::fs::read_to_string(file.to_string()).unwrap();
    assert_eq!(runs, "x\nx\nx\n");
    // Who is asked to end does not restart.
    let words = [
        "elect",
        "--restart",
        "always",
        "n",
        "--",
        "sh",
        "-c",
        "echo up; sleep 60",
    ];
    let process = start(&server, &words);
    assert_eq!(process.expect_line(SOON), "up");
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 143);
    let process = start(&server, &words);
    assert_eq!(process.expect_line(SOON), "up");
    send(&process, Signal::SIGHUP);
    assert_eq!(code(&process), 129);
}

#[tenure_testkit::test]
fn no_zombie_is_left_of_a_command_that_ended() {
    let server = RedisServer::start();
    let words = ["elect", "--restart", "always", "n", "--", "echo", "up"];
    let process = start(&server, &words);
    for _ in 0..3 {
        assert_eq!(process.expect_line(SOON), "up");
    }
    // The one of the last command may just be ending.
    let few = || zombies_of(process.pid()) <= 1;
    assert!(eventually(SOON, few), "{}", zombies_of(process.pid()));
    send(&process, Signal::SIGTERM);
    // 0 if a command just ended by itself.
    let code = code(&process);
    assert!(matches!(code, 0 | 143), "{code}");
}

fn zombies_of(parent: u32) -> usize {
    let stats = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let is_ours = |stat: &String| {
        // After the name, which may contain anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let (state, of) = (fields.next()?, fields.next()?);
        Some(state == "Z" && of == parent.to_string())
    };
    stats.filter(|stat| is_ours(stat) == Some(true)).count()
}

#[tenure_testkit::test]
fn a_command_that_outlived_its_leadership_is_told_by_the_exit_code() {
    let server = RedisServer::start();
    let delete = format!(
        "redis-cli -p {} del n >/dev/null; echo deleted",
        server.port()
    );
    let words = ["elect", "n", "--", "sh", "-c", &delete];
    let ended = command::run(&mut on(&server, &words));
    ended.ended_with(79);
    assert!(ended.stderr.contains("lost `n`"), "{}", ended.stderr);
}

#[tenure_testkit::test]
fn changes_are_followed() {
    let server = RedisServer::start();
    let follower = start(&server, &["leader", "-f", "n"]);
    assert_eq!(follower.expect_line(SOON), "nobody leads");
    let tenure = Tenure::connect(server.url()).unwrap();
    let leadership = tenure.election("n").campaign("one").unwrap();
    let line = follower.expect_line(SOON);
    let expected = format!("one leads, term {}, since ", leadership.term());
    assert!(line.starts_with(&expected), "{line}");
    leadership.proclaim("uno").unwrap();
    assert!(follower.expect_line(SOON).starts_with("uno leads, term "));
    leadership.resign().unwrap();
    assert_eq!(follower.expect_line(SOON), "nobody leads");
    send(&follower, Signal::SIGINT);
    assert_eq!(code(&follower), 130);
}

#[tenure_testkit::test]
fn who_leads_is_told_over_http() {
    let server = RedisServer::start();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    let process = candidate(&server, "one", &["--listen", &address]);
    let term = term(&process);
    let ask = || {
        let mut response = ureq::get(format!("http://{address}/")).call().ok()?;
        response.body_mut().read_to_string().ok()
    };
    let tells = || {
        let told = ask().unwrap_or_default();
        told.contains(&format!("\"term\":{term}")) && told.contains("\"is_me\":true")
    };
    assert!(eventually(SOON, tells), "{:?}", ask());
    let taken = candidate(&server, "two", &["--listen", &address]);
    assert_eq!(code(&taken), 64);
    assert!(
        taken.stderr().contains("cannot listen on"),
        "{}",
        taken.stderr()
    );
}

#[tenure_testkit::test]
fn bad_command_lines_are_refused() {
    let server = RedisServer::start();
    for (words, text) in [
        (
            &["elect", "--value", "", "n", "--", "true"][..],
            "as the value of a leader",
        ),
        (
            &["elect", "-u", "memory://", "n", "--", "true"],
            "memory://",
        ),
        (
            &["elect", "--ttl", "100ms", "-k", "1", "n", "--", "true"],
            "too long",
        ),
        (&["elect", "n"], "required"),
    ] {
        let ended = command::run(&mut on(&server, words));
        assert!([64, 78].contains(&ended.code), "{ended}");
        ended.complains(text);
    }
    server.client().command(&["RPUSH", "n", "x"]);
    let ended = command::run(&mut on(&server, &["elect", "n", "--", "true"]));
    ended.ended_with(64);
    ended.complains("it is not a lock");
    let ended = leader(&server, &[]);
    ended.ended_with(64);
}
