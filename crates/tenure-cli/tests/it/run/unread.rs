//! A stderr that is not read blocks no process.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use rustix::fs::{OFlags, fcntl_setfl};
use tenure_testkit::eventually;

use super::{SOON, is_alive, on, pid, server, warden_of};

#[tenure_testkit::test]
fn a_full_stderr_does_not_keep_the_command_alive_without_its_warden() {
    let unread = Unread::start("unread-warden", &[]);
    kill(pid(warden_of(unread.wrapper.id())), Signal::SIGKILL).unwrap();
    unread.ends_with(70);
}

#[tenure_testkit::test]
fn a_full_stderr_does_not_keep_the_command_alive_without_its_lock() {
    let unread = Unread::start("unread-lost", &["-t", "1"]);
    server().client().command(&["DEL", "unread-lost"]);
    unread.ends_with(79);
}

#[tenure_testkit::test]
fn a_full_stderr_does_not_give_the_command_more_time() {
    let unread = Unread::start("unread-long", &["--max-time", ".3"]);
    unread.ends_with(124);
}

/// A command whose wrapper has a full stderr that is not read.
struct Unread {
    wrapper: Child,
    command: u32,
    _stderr: PipeReader,
}

impl Unread {
    fn start(name: &str, options: &[&str]) -> Self {
        let (reader, writer) = full_pipe();
        let line = "echo $$; exec sleep 60 >&- 2>&-";
        let mut wrapper = on(server(), &[&["run"], options, &[name, "-c", line]].concat());
        wrapper.stdout(Stdio::piped()).stderr(writer);
        let mut wrapper = wrapper.spawn().unwrap();
        let mut command = String::new();
        let stdout = wrapper.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut command).unwrap();
        Self {
            wrapper,
            command: command.trim().parse().unwrap(),
            _stderr: reader,
        }
    }

    #[track_caller]
    fn ends_with(mut self, code: i32) {
        assert!(eventually(SOON, || !is_alive(self.command)), "it is alive");
        let mut ended = None;
        eventually(SOON, || {
            ended = self.wrapper.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(code));
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.wrapper.kill();
        let _ = self.wrapper.wait();
    }
}

fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(b".").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}
