//! Who is not the command's is left alone.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use tenure_testkit::{ClientProcess, eventually};

use super::{SOON, children, code, is_alive, on, pid, send, server, start, warden_of};

/// One that is in the command's group, and no descendant of it. When the command is buried, the
/// group's number may be reused; this one represents that.
struct Stranger(Child);

impl Stranger {
    fn join(group: u32) -> Self {
        let group = pid(group).as_raw();
        let mut command = Command::new("sleep");
        Self(command.arg("77").process_group(group).spawn().unwrap())
    }

    #[track_caller]
    fn is_well(&self) {
        assert!(is_alive(self.0.id()), "somebody else was killed");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that has ended and was buried, and left a child; with a stranger in its group.
fn ended(options: &[&str], name: &str) -> (ClientProcess, u32, Stranger) {
    let line = "trap '' TERM; (trap - USR1; exec sleep 61 >&- 2>&-) & echo $$; echo $!; read _";
    let process = start(&[&["run"], options, &[name, "-c", line]].concat());
    let [command, child] = [0; 2].map(|_: u32| process.expect_line(SOON).parse().unwrap());
    let stranger = Stranger::join(command);
    process.close_stdin();
    let is_reaped = || !std::fs::exists(format!("/proc/{command}")).unwrap();
    assert!(eventually(SOON, is_reaped));
    (process, child, stranger)
}

#[tenure_testkit::test]
fn a_signal_passed_on_after_the_commands_end_is_for_its_descendants() {
    let (process, child, stranger) = ended(&["--wait-all"], "stranger-signal");
    send(&process, Signal::SIGUSR1);
    assert!(eventually(SOON, || !is_alive(child)));
    assert_eq!(code(&process), 1);
    stranger.is_well();
}

#[tenure_testkit::test]
fn who_outlives_the_command_is_killed_alone() {
    let (process, child, stranger) = ended(&["-k", ".5"], "stranger-kill");
    assert_eq!(code(&process), 1, "{}", process.stderr());
    assert!(!is_alive(child));
    stranger.is_well();
}

#[tenure_testkit::test]
fn without_a_warden_too() {
    let options = ["--wait-all", "-t", "2", "-k", ".2"];
    let (process, child, stranger) = ended(&options, "stranger-warden");
    kill(pid(warden_of(process.pid())), Signal::SIGKILL).unwrap();
    assert_eq!(code(&process), 70, "{}", process.stderr());
    assert!(!is_alive(child));
    stranger.is_well();
}

#[tenure_testkit::test]
fn children_that_the_wrapper_had_before_are_left_alone() {
    let mut shell = Command::new("sh");
    let tenure = on(server(), &[]);
    shell.envs(
        tenure
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    shell.env("T", tenure.get_program());
    shell.arg("-c").arg(
        "sh -c 'sleep 77; true' >/dev/null 2>&1 & echo $!; exec $T run earlier -c 'echo $$; exec \
         sleep 60'",
    );
    let process = ClientProcess::spawn(&shell);
    let [earlier, command] = [0; 2].map(|_: u32| process.expect_line(SOON).parse().unwrap());
    let warden = super::parent(command).unwrap();
    kill(pid(warden), Signal::SIGKILL).unwrap();
    let ended = process.wait(SOON);
    let below = children(earlier);
    let is_well = is_alive(earlier) && below.len() == 1 && is_alive(below[0]);
    for id in below.into_iter().chain([earlier]) {
        let _ = kill(pid(id), Signal::SIGKILL);
    }
    assert!(is_well, "somebody else was killed");
    let ended = ended.unwrap_or_else(|| panic!("it waits; {}", process.stderr()));
    assert_eq!(ended.code(), Some(70), "{}", process.stderr());
    assert!(!is_alive(command));
}

#[tenure_testkit::test]
fn one_that_we_may_not_end_is_told_without_a_warden_too() {
    if !rustix::process::geteuid().is_root() {
        // Only root can change its user, and then give up the right to signal.
        return;
    }
    let tenure = on(server(), &[]);
    let mut bound = Command::new("setpriv");
    bound.envs(
        tenure
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    bound.args(["--bounding-set", "-kill", "--inh-caps", "-kill"]);
    bound
        .arg(tenure.get_program())
        .args(["run", "-k", ".2", "forbidden", "-c"]);
    bound.arg("echo $$; exec setpriv --reuid 65534 --clear-groups sleep 3");
    let process = ClientProcess::spawn(&bound);
    let command: u32 = process.expect_line(SOON).parse().unwrap();
    let name = || std::fs::read_to_string(format!("/proc/{command}/comm")).unwrap();
    assert!(eventually(SOON, || name() == "sleep\n"));
    kill(pid(warden_of(process.pid())), Signal::SIGKILL).unwrap();
    assert_eq!(code(&process), 70, "{}", process.stderr());
    assert_eq!(
        process.stderr(),
        format!(
            "tenure: `forbidden`: the warden is gone; stopping the command directly\n\
             tenure: `forbidden`: cannot stop process {command}, started by the command: \
             operation not permitted\n"
        )
    );
}
