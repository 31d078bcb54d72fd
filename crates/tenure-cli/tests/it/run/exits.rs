//! Every exit code.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use tenure_testkit::{ClientProcess, RedisServer};

use super::{SOON, at, code, hold, hold_with, on, pid, run, server, start, warden_of};
use crate::command;

#[tenure_testkit::test]
fn those_of_the_command_are_passed_on() {
    for code in [0, 1, 2, 75, 79, 123, 255] {
        run(&["run", "own", "-c", &format!("exit {code}")]).ended_with(code);
    }
}

#[tenure_testkit::test]
fn a_command_that_a_signal_ended_is_128_and_its_number() {
    for signal in [1, 9, 11, 15] {
        run(&["run", "ended", "-c", &format!("kill -{signal} $$")]).ended_with(128 + signal);
    }
}

#[tenure_testkit::test]
fn a_wrong_command_line_is_64() {
    for arguments in [
        &["run"] as &[&str],
        &["run", "name"],
        &["run", "name", "-c"],
        &["run", "name", "--nonsense", "true"],
        &["run", "-w", "soon", "name", "true"],
        &["run", "-t", "1ms", "name", "true"],
        &["run", "-t", "10", "-k", "4", "name", "true"],
        &["run", "-t", "200ms", "name", "true"],
        &["run", "--at-least", "25h", "name", "true"],
        &["run", "--meta", "nothing", "name", "true"],
        &["run", "a}b", "true"],
    ] {
        let ended = run(arguments);
        ended.ended_with(64);
        assert_eq!(ended.stdout, "");
    }
}

#[tenure_testkit::test]
fn an_unreachable_server_is_69() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port.local_addr().unwrap().port();
    let ended = command::run(&mut at(
        &format!("redis://127.0.0.1:{port}"),
        &["run", "n", "true"],
    ));
    ended.ended_with(69);
    // The place is named once.
    let place = format!("`redis://127.0.0.1:{port}");
    ended.complains("did not answer in time");
    assert_eq!(ended.stderr.matches(&place).count(), 1, "{ended}");
}

#[tenure_testkit::test]
fn a_killed_warden_is_70() {
    let holder = hold("warden-killed");
    let warden = warden_of(holder.pid());
    kill(pid(warden), Signal::SIGKILL).unwrap();
    assert_eq!(code(&holder), 70);
    run(&["run", "-n", "warden-killed", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn a_busy_lock_is_75_or_what_was_asked_for() {
    let _holder = hold("busy");
    for (arguments, code) in [
        (&["run", "-n", "busy", "true"] as &[&str], 75),
        (&["run", "--nb", "busy", "true"], 75),
        (&["run", "--nonblock", "busy", "true"], 75),
        (&["try", "busy", "true"], 75),
        (&["run", "-w", "0", "busy", "true"], 75),
        (&["run", "-w", ".007", "busy", "true"], 75),
        (&["run", "--wait", "100ms", "busy", "true"], 75),
        (&["run", "--timeout", "0.1", "busy", "true"], 75),
        (&["run", "-n", "-E", "1", "busy", "true"], 1),
        (&["try", "--conflict-exit-code", "200", "busy", "true"], 200),
        (&["run", "-n", "--skip", "busy", "true"], 0),
        (&["run", "-w", ".01", "--skip", "busy", "true"], 0),
    ] {
        let ended = run(arguments);
        ended.ended_with(code);
        assert_eq!(ended.stdout, "");
    }
}

#[tenure_testkit::test]
fn a_refused_password_is_77_and_not_told() {
    let server = RedisServer::builder().password("right").start();
    let url = format!("redis://:wrong@{}/", server.addr());
    let ended = command::run(&mut at(&url, &["run", "n", "true"]));
    ended.ended_with(77);
    ended.keeps("wrong@");
    command::run(&mut on(&server, &["run", "n", "true"])).ended_with(0);
}

#[tenure_testkit::test]
fn a_wrong_url_or_variable_is_78() {
    command::run(&mut at("http://h/", &["run", "n", "true"])).ended_with(78);
    let ended = command::run(&mut at("memory://", &["run", "n", "true"]));
    ended.ended_with(78);
    ended.complains("such a lock exists in one process only");
    let mut command = on(server(), &["run", "n", "true"]);
    command::run(command.env("TENURE_TTL", "soon")).ended_with(78);
    let mut command = on(server(), &["run", "n", "true"]);
    command::run(command.env("TENURE_CONFIG", "/does/not/exist")).ended_with(78);
}

#[tenure_testkit::test]
fn a_lost_lock_is_79_or_what_was_asked_for() {
    for (name, options, expected) in [
        ("gone", &[] as &[&str], 79),
        ("gone-otherwise", &["--lost-exit-code", "3"], 3),
    ] {
        // Half a second, so that the holder is told of the key.
        let options = [&["-t", "1"], options].concat();
        let holder = hold_with(&options, name);
        server().client().command(&["DEL", name]);
        assert_eq!(code(&holder), expected, "{}", holder.stderr());
    }
}

#[tenure_testkit::test]
fn a_command_that_runs_too_long_is_124() {
    run(&["run", "--max-time", ".1", "long", "sleep", "60"]).ended_with(124);
    let deaf = "trap '' TERM; sleep 60 & sleep 61";
    run(&["run", "--max-time", ".1", "-k", ".1", "long", "-c", deaf]).ended_with(124);
}

#[tenure_testkit::test]
fn a_command_that_cannot_be_run_is_126_and_one_that_is_not_there_127() {
    let _holder = hold("held-meanwhile");
    // At once, without waiting for the lock.
    for (command, code) in [
        ("/etc/passwd", 126),
        ("/", 126),
        ("no-such-command", 127),
        ("/no/such/command", 127),
    ] {
        run(&["run", "held-meanwhile", command]).ended_with(code);
    }
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("here"), "").unwrap();
    let mut command = on(server(), &["run", "held-meanwhile", "here"]);
    command::run(command.env("PATH", files.path())).ended_with(126);
}

#[tenure_testkit::test]
fn a_program_that_the_system_refuses_is_126_and_the_lock_is_free_again() {
    use std::os::unix::fs::PermissionsExt;
    let files = tempfile::tempdir().unwrap();
    let script = files.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run(&["run", "refused", script.to_str().unwrap()]);
    ended.ended_with(127);
    ended.complains("tenure: cannot run `");
    run(&["run", "-n", "refused", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn a_signal_that_ends_the_waiting_is_128_and_its_number() {
    let _holder = hold("queue-left");
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
    ] {
        let waiter = start(&["run", "-v", "queue-left", "true"]);
        assert!(tenure_testkit::eventually(super::SOON, || {
            super::waiters(server(), "queue-left") == 1
        }));
        super::send(&waiter, signal);
        assert_eq!(code(&waiter), 128 + signal as i32);
        assert_eq!(
            super::waiters(server(), "queue-left"),
            0,
            "its place is given up"
        );
    }
}

/// The lease ends by itself.
#[tenure_testkit::test]
fn a_server_that_is_silent_at_the_end_does_not_hold_up_the_exit() {
    let server = RedisServer::start();
    let process = ClientProcess::spawn(&on(&server, &["run", "-t", "60", "late", "--", "cat"]));
    process.send_line("it runs");
    assert_eq!(process.expect_line(SOON), "it runs");
    server.pause();
    let begun = Instant::now();
    process.close_stdin();
    assert_eq!(code(&process), 0);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let told =
        "unknown whether `late` was released: the server did not respond; it expires within 1m00s";
    assert!(process.stderr().contains(told), "{}", process.stderr());
}

/// As where PID 1 does not wait for processes that it did not start, in a container. Skipped without
/// Python.
#[tenure_testkit::test]
fn no_process_is_left_to_whoever_adopts_it() {
    let script = "\
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for _ in range(30):
    subprocess.run(sys.argv[1:], check=True)
me = str(os.getpid())
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        name, _, fields = open(f'/proc/{pid}/stat').read().rpartition(') ')
    except OSError:
        continue
    if fields.split()[1] == me:
        print('left:', name, fields[:1])
";
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let mut python = std::process::Command::new("python3");
    python.args(["-c", script, tenure, "run", "adopted", "--", "true"]);
    python.env("TENURE_URL", server().url());
    let Ok(output) = python.output() else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}
