//! What each option does.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tenure_testkit::{ClientProcess, RedisServer, eventually};

use super::{SOON, code, hold, hold_with, on, run, send, server, start, waiters};
use crate::command;

fn text(words: &[&str]) -> String {
    let reply = server().client().command(words);
    if reply.is_nil() {
        String::new()
    } else {
        reply.text().to_owned()
    }
}

fn ttl_of(name: &str) -> i64 {
    server().client().command(&["PTTL", name]).int()
}

#[tenure_testkit::test]
fn wait_waits_until_the_lock_is_free() {
    let holder = start(&["run", "freed", "-c", "echo held; read _"]);
    assert_eq!(holder.expect_line(SOON), "held");
    let waiter = start(&["run", "-w", "60", "freed", "-c", "echo mine"]);
    assert!(eventually(SOON, || waiters(server(), "freed") == 1));
    holder.close_stdin();
    assert_eq!(waiter.expect_line(SOON), "mine");
    assert_eq!(code(&waiter), 0);
}

#[tenure_testkit::test]
fn command_is_a_line_for_the_shell() {
    let ended = run(&["run", "line", "-c", "echo a | tr a b; exit 3"]);
    ended.ended_with(3);
    assert_eq!(ended.stdout, "b\n");
    let ended = run(&["run", "--command", "echo before", "line"]);
    assert_eq!(ended.stdout, "before\n");
}

#[tenure_testkit::test]
fn ttl_comes_from_the_option_then_the_variable_then_the_file() {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("tenure.toml");
    std::fs::write(&config, "ttl = \"13s\"\n").unwrap();
    let ttl = |options: &[&str], variable: Option<&str>, with_file: bool| {
        let line = ["ttl-of", "-c", "echo $TENURE_TTL_MS"];
        let mut command = on(server(), &[&["run"], options, &line].concat());
        if let Some(variable) = variable {
            command.env("TENURE_TTL", variable);
        }
        if with_file {
            command.env("TENURE_CONFIG", &config);
        }
        command::run(&mut command).stdout
    };
    assert_eq!(ttl(&["-t", "11"], Some("12s"), true), "11000\n");
    assert_eq!(ttl(&["--ttl", "500ms"], None, false), "500\n");
    assert_eq!(ttl(&[], Some("12s"), true), "12000\n");
    assert_eq!(ttl(&[], None, true), "13000\n");
    assert_eq!(ttl(&[], None, false), "30000\n");
}

#[tenure_testkit::test]
fn a_lease_is_renewed_unless_told_otherwise() {
    let ended = run(&["run", "-t", ".6", "renewed", "sleep", "1.5"]);
    ended.ended_with(0);
    let ended = run(&["run", "-t", ".6", "--no-renew", "renewed", "sleep", "60"]);
    ended.ended_with(79);
    let ended = run(&["run", "-t", "20", "--no-renew", "renewed", "true"]);
    ended.ended_with(0);
}

#[tenure_testkit::test]
fn at_least_leaves_the_lease_behind_for_the_rest() {
    let begun = Instant::now();
    run(&["run", "--at-least", "20", "kept", "true"]).ended_with(0);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "it did not wait for that"
    );
    let left = ttl_of("kept");
    assert!((5_000..=20_000).contains(&left), "{left}");
    run(&["run", "-n", "kept", "true"]).ended_with(75);
    // Longer than the ttl, too; and not at all if the command took long enough.
    run(&["run", "-t", "1", "--at-least", "1m", "kept-long", "true"]).ended_with(0);
    assert!(ttl_of("kept-long") > 30_000);
    run(&["run", "--at-least", ".1", "not-kept", "sleep", ".3"]).ended_with(0);
    run(&["run", "-n", "not-kept", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn at_least_does_not_hide_that_the_lock_was_lost() {
    let files = tempfile::tempdir().unwrap();
    let end = files.path().join("end");
    let line = format!(
        "echo held; until [ -e {} ]; do sleep .01; done",
        end.display()
    );
    let process = start(&["run", "--at-least", "20", "lost-before", "-c", &line]);
    assert_eq!(process.expect_line(SOON), "held");
    server().client().command(&["DEL", "lost-before"]);
    std::fs::write(end, "").unwrap();
    assert_eq!(code(&process), 79, "{}", process.stderr());
}

#[tenure_testkit::test]
fn the_shortest_ttl_that_is_taken_is_kept() {
    // A machine that stands still for 90 ms loses such a lease, and must.
    let kept = || run(&["run", "-t", "270ms", "short", "sleep", "1"]).code == 0;
    assert!((0..10).any(|_| kept()));
}

#[tenure_testkit::test]
fn max_time_asks_before_it_kills() {
    let line = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.01; done";
    let ended = run(&["run", "--max-time", ".3", "asked", "-c", line]);
    ended.ended_with(124);
    assert_eq!(ended.stdout, "asked\n");
}

#[tenure_testkit::test]
fn max_time_may_be_longer_than_any_clock() {
    let ended = run(&[
        "run",
        "--max-time",
        "10000000000000000000",
        "forever",
        "true",
    ]);
    ended.ended_with(0);
    assert_eq!(ended.stderr, "");
}

#[tenure_testkit::test]
fn kill_after_is_the_time_between() {
    let line = "trap 'echo asked' TERM; while :; do sleep 0.01; done";
    let ended = run(&["run", "--max-time", ".2", "-k", ".4", "killed", "-c", line]);
    ended.ended_with(124);
    ended.says("asked\n");
    assert!(ended.took >= Duration::from_millis(600), "{ended}");
}

#[tenure_testkit::test]
fn on_lost_warn_lets_the_command_go_on() {
    let line = "echo held; read _; echo went on; exit 6";
    let process = start(&["run", "-t", "1", "--on-lost", "warn", "warned", "-c", line]);
    assert_eq!(process.expect_line(SOON), "held");
    server().client().command(&["DEL", "warned"]);
    assert!(eventually(SOON, || process
        .stderr()
        .contains("lost `warned`")));
    process.close_stdin();
    assert_eq!(process.expect_line(SOON), "went on");
    assert_eq!(code(&process), 6);
    assert_eq!(
        process.stderr(),
        "tenure: lost `warned`: the store no longer has it; the command keeps running without it\n"
    );
}

#[tenure_testkit::test]
fn meta_is_written_about_the_lease() {
    let line = [
        "--meta",
        "job=7",
        "--meta",
        "why=a=b",
        "noted",
        "-c",
        "echo held; read _",
    ];
    let process = start(&[&["run"], line.as_slice()].concat());
    assert_eq!(process.expect_line(SOON), "held");
    assert_eq!(text(&["HGET", "tenure:meta:{noted}", "job"]), "7");
    assert_eq!(text(&["HGET", "tenure:meta:{noted}", "why"]), "a=b");
}

#[tenure_testkit::test]
fn the_record_names_user_and_program_but_no_argument() {
    let mut process = on(server(), &["run", "recorded", "--", "sleep", "60.0"]);
    // The environment is not trusted for the user's name.
    process.env("USER", "somebody");
    let _process = ClientProcess::spawn(&process);
    let named = format!("({}, sleep)", command::account());
    let mut shown = String::new();
    let is_shown = eventually(SOON, || {
        let ended = run(&["run", "-n", "recorded", "true"]);
        shown = ended.stderr;
        shown.contains(&named)
    });
    assert!(is_shown, "{shown}");
    assert!(!shown.contains("60.0"), "{shown}");
}

#[tenure_testkit::test]
fn jitter_delays_the_asking() {
    run(&["run", "--jitter", "50ms", "delayed", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn exclusive_is_what_happens_anyway() {
    run(&["run", "-x", "exclusive", "true"]).ended_with(0);
    run(&["run", "--exclusive", "exclusive", "true"]).ended_with(0);
    run(&["run", "-e", "exclusive", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn letters_that_are_reserved_or_make_no_sense_are_refused_with_the_reason() {
    for (option, told) in [
        (&["--unfair"] as &[&str], "--unfair is not supported yet"),
        (
            &["-F"],
            "-F/--no-fork is not supported: `tenure` keeps running",
        ),
        (&["--no-fork"], "-F/--no-fork is not supported"),
        (&["-o"], "-o/--close is not supported"),
        (&["--close"], "-o/--close is not supported"),
    ] {
        let ended = run(&[&["run"], option, &["letters", "true"]].concat());
        ended.ended_with(64);
        ended.complains(told);
    }
}

#[tenure_testkit::test]
fn quiet_says_nothing_of_a_busy_lock() {
    let _holder = hold("quiet");
    let ended = run(&["run", "-q", "-n", "quiet", "true"]);
    ended.ended_with(75);
    assert_eq!(ended.stderr, "");
    let ended = run(&["run", "--skip", "-n", "quiet", "true"]);
    assert_eq!(ended.stderr, "");
}

#[tenure_testkit::test]
fn skip_does_not_wait_unless_told_for_how_long() {
    let holder = hold("skipped");
    let ended = run(&["run", "--skip", "skipped", "echo", "ran"]);
    ended.ended_with(0);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("", ""));
    let patient = start(&["run", "--skip", "-w", "60", "skipped", "echo", "ran"]);
    assert!(eventually(SOON, || waiters(server(), "skipped") == 1));
    send(&holder, Signal::SIGTERM);
    assert_eq!(patient.expect_line(SOON), "ran");
}

/// As long as the caller is willing to wait.
#[tenure_testkit::test]
fn who_waits_sits_out_a_servers_trouble() {
    let server = RedisServer::start();
    let held = on(
        &server,
        &["run", "-t", "3", "n", "-c", "echo held; exec sleep 60"],
    );
    let holder = ClientProcess::spawn(&held);
    assert_eq!(holder.expect_line(SOON), "held");
    let waiting = on(&server, &["run", "-w", "60", "n", "echo", "ran"]);
    let waiting = ClientProcess::spawn(&waiting);
    assert!(eventually(SOON, || waiters(&server, "n") == 1));
    server.pause();
    // Its lease has ended, and a library's patience with it.
    assert_eq!(code(&holder), 79);
    let is_told = || waiting.stderr().contains("tenure: still waiting for `n`: ");
    assert!(eventually(SOON, is_told), "{}", waiting.stderr());
    server.resume();
    assert_eq!(waiting.expect_line(SOON * 3), "ran");
}

#[tenure_testkit::test]
fn the_help_has_the_letters_and_the_warden_is_not_in_it() {
    let ended = command::run(&mut command::tenure(&["run", "--help"]));
    ended.ended_with(0);
    for option in [
        "-n, --nonblock",
        "-w, --wait",
        "-E, --conflict-exit-code",
        "-c, --command",
        "-t, --ttl",
        "--no-renew",
        "--at-least",
        "--max-time",
        "-k, --kill-after",
        "--on-lost",
        "--lost-exit-code",
        "--wait-all",
        "--skip",
        "--foreground",
        "--meta",
        "--jitter",
        "-q, --quiet",
        "-v, --verbose",
        "TENURE_FENCE",
        "tenure run -n deploy -- make deploy",
    ] {
        ended.says(option);
    }
    let ended = command::run(&mut command::tenure(&["--help"]));
    assert!(!ended.stdout.contains("warden"), "{ended}");
}

#[tenure_testkit::test]
fn several_servers_hold_a_lock_by_majority() {
    let nodes = tenure_testkit::RedlockNodes::start();
    let urls = nodes.urls().join(" ");
    let run = |arguments: &[&str]| command::run(&mut super::at(&urls, arguments));
    nodes.node(0).kill();
    let ended = run(&[
        "run",
        "--at-least",
        "20",
        "majority",
        "-c",
        "echo $TENURE_NAME",
    ]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "majority\n");
    run(&["run", "-n", "majority", "true"]).ended_with(75);
    // A server that was restarted has no vote for as long as a lease can last: that is bounded.
    let ended = run(&["run", "--at-least", "1h", "majority-long", "true"]);
    ended.ended_with(0);
    assert_eq!(
        ended.stderr,
        "tenure: cannot keep `majority-long` for 59m59s more: the longest ttl there is 30.0s\n"
    );
}

/// On several servers a lease above 30 seconds is for clients that all say so.
#[tenure_testkit::test]
fn longer_leases_on_several_servers_are_asked_for_by_every_client() {
    let nodes = tenure_testkit::RedlockNodes::start();
    let urls = nodes.urls().join(" ");
    let run = |arguments: &[&str]| command::run(&mut super::at(&urls, arguments));
    let long = ["run", "--ttl", "45s", "long", "true"];
    let ended = run(&long);
    assert_ne!(ended.code, 0, "{ended}");
    let mut told = super::at(&urls, &long);
    command::run(told.env("TENURE_LONGEST_TTL", "60s")).ended_with(0);
    let ended = run(&["ls"]);
    assert_ne!(ended.code, 0, "{ended}");
    for part in ["longest_ttl", "45s", "30s"] {
        assert!(ended.stderr.contains(part), "{part} in {ended}");
    }
    run(&["ls", "--longest-ttl", "45s"]).ended_with(0);
}

#[tenure_testkit::test]
fn readers_run_at_once_and_no_writer_beside_them() {
    let _one = hold_with(&["-s"], "shared");
    let _two = hold_with(&["--shared"], "shared");
    let ended = run(&["run", "-n", "shared", "true"]);
    ended.ended_with(75);
    ended.complains("reader");
    let shown = run(&["show", "shared"]);
    shown.ended_with(0);
    assert!(shown.stdout.contains("2 readers"), "{}", shown.stdout);
    assert_eq!(
        shown.stdout.matches("Reader:").count(),
        2,
        "{}",
        shown.stdout
    );
    let _writer = hold("shared-by-none");
    let ended = run(&["run", "-s", "-n", "shared-by-none", "true"]);
    ended.ended_with(75);
}

#[tenure_testkit::test]
fn a_shared_lock_cannot_be_exclusive_or_have_metadata() {
    for option in [&["-x"] as &[&str], &["--meta", "a=b"]] {
        let ended = run(&[&["run", "-s"], option, &["shared", "true"]].concat());
        ended.ended_with(64);
        ended.complains("cannot be used with");
    }
}
