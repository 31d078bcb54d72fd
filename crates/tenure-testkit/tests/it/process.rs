//! Client processes and their faults.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure_testkit::{ClientProcess, RedisServer, eventually};

use crate::{A_WHILE, SOON};

#[test]
fn sends_and_reads_lines() {
    let cat = ClientProcess::spawn(&Command::new("cat"));
    cat.send_line("hello");
    assert_eq!(cat.expect_line(SOON), "hello");
    assert_eq!(cat.read_line(Duration::from_millis(10)), None);
    cat.send_line("one");
    cat.send_line("two");
    cat.close_stdin();
    assert_eq!(cat.lines().collect::<Vec<_>>(), ["one", "two"]);
    cat.wait_for_success(SOON);
}

#[test]
fn a_paused_process_writes_nothing_until_it_resumes() {
    let cat = ClientProcess::spawn(&Command::new("cat"));
    cat.pause();
    cat.send_line("hello");
    assert_eq!(cat.read_line(A_WHILE), None);
    assert!(cat.is_running());
    cat.resume();
    assert_eq!(cat.expect_line(SOON), "hello");
}

#[test]
fn a_killed_process_is_gone_even_if_it_was_paused() {
    let cat = ClientProcess::spawn(&Command::new("cat"));
    cat.pause();
    assert_eq!(cat.wait(Duration::from_millis(10)), None);
    cat.kill();
    assert!(!cat.is_running());
    assert!(!cat.wait(SOON).unwrap().success());
}

#[test]
fn a_dropped_process_is_gone() {
    let cat = ClientProcess::spawn(&Command::new("cat"));
    let pid = cat.pid();
    drop(cat);
    assert!(!is_alive(pid));
}

#[test]
fn environment_and_directory_are_passed_on() {
    let mut command = shell("echo $WORD $HOME; pwd");
    command
        .env("WORD", "hi")
        .env_remove("HOME")
        .current_dir("/usr");
    let shell = ClientProcess::spawn(&command);
    assert_eq!(shell.lines().collect::<Vec<_>>(), ["hi", "/usr"]);
}

#[test]
#[should_panic(expected = "oh dear")]
fn a_failure_shows_the_standard_error() {
    let shell = ClientProcess::spawn(&shell("echo oh dear >&2; exit 3"));
    // Its output ends when it exits, so its standard error arrives by then or soon after.
    eventually(SOON, || shell.stderr().contains("oh dear"));
    shell.wait_for_success(SOON);
}

#[test]
fn servers_die_with_a_killed_test_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["process::start_a_server_and_wait", "--exact", "--ignored"])
        .arg("--nocapture")
        // Deletes what the killed process leaves behind.
        .env("TMPDIR", dir.path());
    let test = ClientProcess::spawn(&command);
    let pid = test.lines().find_map(|line| {
        let (_, pid) = line.split_once("server is process ")?;
        pid.parse().ok()
    });
    let pid = pid.expect("the server did not start");
    assert!(is_alive(pid));
    test.kill();
    assert!(eventually(SOON, || !is_alive(pid)));
}

#[test]
#[ignore = "not a test, but the process that another test kills"]
fn start_a_server_and_wait() {
    let server = RedisServer::start();
    println!("\nserver is process {}", server.pid());
    std::thread::sleep(Duration::from_mins(1));
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Zombies are dead: their new parent has not reaped them yet.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
