//! What the command gets, and what it gives.

use tenure_testkit::RedisServer;

use super::{SOON, code, on, run, server, start};
use crate::command;

#[tenure_testkit::test]
fn the_command_gets_name_fence_lease_and_ttl_and_nothing_else() {
    let mut command = on(server(), &["run", "-t", "20", "env", "--", "env"]);
    command.env_clear();
    command.env("TENURE_URL", server().url());
    command.env("PATH", "/usr/bin:/bin").env("MINE", "kept");
    let ended = command::run(&mut command);
    ended.ended_with(0);
    let mut names: Vec<&str> = ended.stdout.lines().collect();
    names.sort_unstable();
    let starts = [
        "MINE=kept",
        "PATH=/usr/bin:/bin",
        "TENURE_FENCE=1",
        "TENURE_LEASE=tenure:",
        "TENURE_NAME=env",
        "TENURE_TTL_MS=20000",
        "TENURE_URL=redis://",
    ];
    assert_eq!(names.len(), starts.len(), "{ended}");
    for (line, start) in names.iter().zip(starts) {
        assert!(line.starts_with(start), "{ended}");
    }
    assert_eq!(ended.stderr, "");
}

/// Everything that the command starts would have it in its environment.
#[tenure_testkit::test]
fn the_command_does_not_get_the_password() {
    let server = RedisServer::builder().password("s3cr3t").start();
    let mut command = on(&server, &["run", "env", "--", "env"]);
    let url = format!("redis://{}", server.addr());
    command
        .env("TENURE_URL", url)
        .env("TENURE_PASSWORD", "s3cr3t");
    let ended = command::run(&mut command);
    ended.ended_with(0);
    ended.says("TENURE_NAME=env");
    ended.keeps("s3cr3t");
}

#[tenure_testkit::test]
fn fences_grow_from_command_to_command() {
    let fence = || -> u64 {
        let ended = run(&["run", "growing", "-c", "echo $TENURE_FENCE"]);
        ended.stdout.trim().parse().unwrap()
    };
    let first = fence();
    assert!(fence() > first);
}

#[tenure_testkit::test]
fn input_and_output_are_those_of_the_command() {
    let process = start(&["run", "talk", "--", "cat"]);
    for line in ["one", "two"] {
        process.send_line(line);
        assert_eq!(process.expect_line(SOON), line);
    }
    process.close_stdin();
    assert_eq!(code(&process), 0);
    assert_eq!(process.stderr(), "");
}

#[tenure_testkit::test]
fn nothing_is_said_when_all_is_well() {
    let ended = run(&["run", "silence", "-c", "echo out; echo err >&2"]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "out\n");
    assert_eq!(ended.stderr, "err\n");
}

#[tenure_testkit::test]
fn arguments_of_the_command_are_untouched() {
    for arguments in [
        &[
            "run", "words", "--", "echo", "-v", "-n", "--", "--url", "a b",
        ] as &[&str],
        &["run", "words", "echo", "-v", "-n", "--", "--url", "a b"],
        &[
            "run", "-w", "30", "words", "echo", "-v", "-n", "--", "--url", "a b",
        ],
    ] {
        let ended = run(arguments);
        ended.ended_with(0);
        assert_eq!(ended.stdout, "-v -n -- --url a b\n");
    }
}

#[tenure_testkit::test]
fn a_script_without_a_first_line_is_one_for_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let files = tempfile::tempdir().unwrap();
    let script = files.path().join("script");
    std::fs::write(&script, "echo \"got $1\"\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run(&["run", "script", script.to_str().unwrap(), "it"]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "got it\n");
}

#[tenure_testkit::test]
fn what_was_ignored_stays_ignored_and_the_rest_is_not() {
    command::heed_signals();
    let line = "trap '' USR1; exec \"$0\" run ignoring -- grep SigIgn /proc/self/status";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_tenure")]);
    command.env("TENURE_URL", server().url());
    let ended = command::run(&mut command);
    ended.ended_with(0);
    // USR1 is the tenth.
    assert_eq!(masks(&ended.stdout), [0x200]);
    let ended = run(&[
        "run",
        "ignoring",
        "--",
        "grep",
        "-E",
        "Sig(Blk|Ign)",
        "/proc/self/status",
    ]);
    assert_eq!(masks(&ended.stdout), [0, 0]);
}

/// The masks in lines of `/proc/PID/status`, without the signals that are the C library's own.
fn masks(lines: &str) -> Vec<u64> {
    let mask = |line: &str| u64::from_str_radix(line.rsplit('\t').next()?, 16).ok();
    lines
        .lines()
        .filter_map(mask)
        .map(|mask| mask & 0x7fff_ffff)
        .collect()
}

#[tenure_testkit::test]
fn the_command_inherits_nothing_of_ours() {
    let ended = run(&["run", "files", "-c", "ls /proc/$$/fd"]);
    ended.ended_with(0);
    let inherited: Vec<&str> = ended.stdout.lines().filter(|fd| fd.len() == 1).collect();
    assert!(
        inherited.iter().all(|fd| ["0", "1", "2"].contains(fd)),
        "{ended}"
    );
}
