//! `tenure once`.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure::OnceState;
use tenure::blocking::Tenure;
use tenure_testkit::{ClientProcess, RedisServer, eventually};

use crate::command;

const SOON: Duration = Duration::from_secs(30);

fn on(server: &RedisServer, options: &[&str], script: &str) -> Command {
    let words = ["n", "--", "sh", "-c", script];
    let mut command = command::tenure(&[&["once", "--at", "3"], options, &words].concat());
    command.env("TENURE_URL", server.url());
    command
}

fn once(server: &RedisServer, options: &[&str], script: &str) -> command::Ended {
    command::run(&mut on(server, options, script))
}

/// Starts a run whose command says that it runs, and then sleeps.
fn running(server: &RedisServer, options: &[&str]) -> ClientProcess {
    let script = "echo running $TENURE_FENCE; exec sleep 60";
    let process = ClientProcess::spawn(&on(server, options, script));
    let line = process.expect_line(SOON);
    assert!(line.starts_with("running "), "{line}");
    process
}

fn state(server: &RedisServer) -> OnceState {
    let tenure = Tenure::connect(server.url()).unwrap();
    tenure.once("n", 3).state().unwrap()
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

#[tenure_testkit::test]
fn a_command_runs_once_for_each_fire_time() {
    let server = RedisServer::start();
    let ended = once(&server, &[], "echo $TENURE_NAME");
    ended.ended_with(0);
    assert_eq!(ended.stdout, "n@3\n");
    assert_eq!(ended.stderr, "");
    for options in [&[][..], &["--retry"], &["-w", "10s"]] {
        let late = once(&server, options, "echo again");
        late.ended_with(0);
        assert_eq!((late.stdout.as_str(), late.stderr.as_str()), ("", ""));
    }
    once(&server, &["-v"], "echo again").complains("a run has completed");
    let words = ["once", "--at", "4", "n", "--", "echo", "again"];
    let next = command::run(command::tenure(&words).env("TENURE_URL", server.url()));
    next.ended_with(0);
    assert_eq!(next.stdout, "again\n");
}

#[tenure_testkit::test]
fn a_failed_command_is_repeated_only_if_asked() {
    let server = RedisServer::start();
    let failed = once(&server, &["-v"], "exit 7");
    failed.ended_with(7);
    failed.complains("ended without completing");
    assert!(matches!(state(&server), OnceState::Ended(_)));
    let late = once(&server, &[], "echo again");
    late.ended_with(75);
    late.complains("--retry repeats it");
    assert_eq!(late.stdout, "");
    let quiet = once(&server, &["-q"], "echo again");
    quiet.ended_with(75);
    assert_eq!(quiet.stderr, "");
    let again = once(&server, &["--retry"], "echo again");
    again.ended_with(0);
    assert_eq!(again.stdout, "again\n");
    assert!(matches!(state(&server), OnceState::Completed(_)));
}

#[tenure_testkit::test]
fn who_comes_meanwhile_does_nothing_or_waits() {
    let server = RedisServer::start();
    let first = running(&server, &[]);
    let second = once(&server, &["-v"], "echo again");
    second.ended_with(0);
    second.complains("a run is in progress");
    let impatient = once(&server, &["-w", "50ms"], "echo again");
    impatient.ended_with(75);
    impatient.complains("gave up waiting");
    let patient = ClientProcess::spawn(&on(&server, &["-w", "60", "--retry"], "echo mine"));
    let waits = || {
        let queue = server
            .client()
            .command(&["ZCARD", "tenure:queue:{n@3}"])
            .int();
        queue == 1
    };
    assert!(eventually(SOON, waits));
    send(&first, Signal::SIGTERM);
    assert_eq!(code(&first), 143);
    assert_eq!(patient.expect_line(SOON), "mine");
    assert_eq!(code(&patient), 0);
}

/// As if its machine had died: nothing is left of the command when another may begin.
#[tenure_testkit::test]
fn a_killed_run_is_repeated_after_its_lease_and_its_command_is_gone() {
    let server = RedisServer::start();
    let first = running(&server, &["--ttl", "2"]);
    let is_left = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let url = format!("TENURE_URL={}", server.url());
        let mut environments =
            processes.map(|it| std::fs::read(it.path().join("environ")).unwrap_or_default());
        environments.any(|environment| {
            let has = |wanted: &[u8]| environment.split(|byte| *byte == 0).any(|it| it == wanted);
            has(url.as_bytes()) && has(b"TENURE_NAME=n@3")
        })
    };
    assert!(is_left(), "its command runs");
    first.kill();
    let second = once(&server, &["--retry", "-w", "60"], "echo again");
    second.ended_with(0);
    assert_eq!(second.stdout, "again\n");
    assert!(!is_left(), "its command still runs");
}

#[tenure_testkit::test]
fn a_command_whose_run_was_lost_is_stopped() {
    let server = RedisServer::start();
    let process = running(&server, &[]);
    let tenure = Tenure::connect(server.url()).unwrap();
    // Watched after a second.
    std::thread::sleep(Duration::from_millis(1_500));
    let holder = tenure.lock("n@3").holder().unwrap().unwrap();
    tenure.force_release("n@3", &holder.lease).unwrap();
    assert_eq!(code(&process), 79);
    assert!(matches!(state(&server), OnceState::Ended(_)));
}

/// Another run has begun, so this one must not count.
#[tenure_testkit::test]
fn a_command_that_outlived_its_run_is_told_by_the_exit_code() {
    let server = RedisServer::start();
    let port = server.port();
    let take = format!(
        "redis-cli -p {port} set n@3 other px 60000 >/dev/null; \
         redis-cli -p {port} set tenure:once:{{n@3}} 'begun other' px 60000 >/dev/null"
    );
    let ended = once(&server, &[], &take);
    assert_eq!(ended.code, 79, "{ended}");
    assert!(matches!(state(&server), OnceState::Running(_)));
}

#[tenure_testkit::test]
fn a_run_within_its_own_command_is_refused() {
    let server = RedisServer::start();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let nested = format!("{tenure} once --at 3 -w 60 n -- echo again");
    let ended = once(&server, &[], &nested);
    ended.ended_with(64);
    ended.complains("would wait for itself");
}

#[tenure_testkit::test]
fn bad_command_lines_are_refused() {
    let server = RedisServer::start();
    let url = server.url();
    for (words, text) in [
        (&["once", "n", "--", "true"][..], "--at"),
        (&["once", "--at", "3", "n"], "required"),
        (&["once", "--at", "3@4", "n", "--", "true"], "without `@`"),
        (&["once", "--at", "", "n", "--", "true"], "as the fire time"),
        (
            &["once", "--at", "3", "--remember", "1s", "n", "--", "true"],
            "to remember",
        ),
        (
            &["once", "--at", "3", "-u", "memory://", "n", "--", "true"],
            "memory://",
        ),
        (
            &[
                "once", "--at", "3", "-u", &url, "-u", &url, "n", "--", "true",
            ],
            "independent servers",
        ),
    ] {
        let mut command = command::tenure(words);
        command.env("TENURE_URL", &url);
        let ended = command::run(&mut command);
        assert!([64, 78].contains(&ended.code), "{ended}");
        ended.complains(text);
    }
    assert_eq!(server.client().command(&["EXISTS", "n@3"]).int(), 0);
}
