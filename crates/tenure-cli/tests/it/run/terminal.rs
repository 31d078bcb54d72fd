//! A command that has the terminal. `script` makes one, with an interactive shell in it.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tenure_testkit::{ClientProcess, eventually};

use super::{SOON, hold, server};

/// A shell with job control on a terminal of its own. What is said there is heard line by line.
fn shell() -> ClientProcess {
    crate::command::heed_signals();
    let mut command = Command::new("script");
    command.args([
        "-qfec",
        "stty -echo; PS1= exec bash --norc --noprofile -i",
        "/dev/null",
    ]);
    command
        .env("TENURE_URL", server().url())
        .env("TERM", "dumb");
    command.env("T", env!("CARGO_BIN_EXE_tenure"));
    let shell = ClientProcess::spawn(&command);
    shell.send_line(
        "PS1=; PROMPT_COMMAND=; bind 'set enable-bracketed-paste off'; stty cols 200; echo re''ady",
    );
    expect(&shell, "ready");
    shell
}

#[track_caller]
fn expect(shell: &ClientProcess, words: &str) -> String {
    let mut heard = String::new();
    let found = eventually(SOON, || {
        let line = shell.read_line(Duration::from_secs(1)).unwrap_or_default();
        heard.push_str(&line);
        heard.push('\n');
        line.contains(words)
    });
    assert!(found, "no `{words}` in {heard}");
    heard
}

/// Presses a key until that is heard, as people do: on a crowded machine one may come while the
/// terminal goes from one to the other.
#[track_caller]
fn press(shell: &ClientProcess, key: &str, words: &str) -> String {
    let mut heard = String::new();
    for _ in 0..4 {
        shell.send_line(key);
        let found = eventually(SOON / 4, || {
            let line = shell.read_line(Duration::from_secs(1)).unwrap_or_default();
            heard.push_str(&line);
            heard.push('\n');
            line.contains(words)
        });
        if found {
            return heard;
        }
    }
    panic!("no `{words}` in {heard}");
}

#[tenure_testkit::test]
fn the_command_has_the_terminal_and_the_shell_gets_it_back() {
    let shell = shell();
    // `read` from a terminal works in the foreground only.
    shell.send_line("$T run tty-read -- sh -c 'read word </dev/tty; echo got-$word'");
    shell.send_line("it");
    expect(&shell, "got-it");
    shell.send_line("echo back-$?");
    expect(&shell, "back-0");
}

/// As a pager does. It would be stopped in the background.
#[tenure_testkit::test]
fn a_command_that_reads_a_pipe_has_the_terminal() {
    let shell = shell();
    shell.send_line(
        "seq 3 | $T run tty-pipe -- sh -c 'read word </dev/tty; echo got-$word-$(tail -n 1)'",
    );
    shell.send_line("it");
    expect(&shell, "got-it-3");
    shell.send_line("echo back-$?");
    expect(&shell, "back-0");
    // Here it is the other end of the pipeline that reads the terminal.
    shell.send_line(
        "seq 3 | $T run tty-pipe -- cat | sh -c 'read word </dev/tty; echo got-$word-$(tail -n 1)'",
    );
    shell.send_line("this");
    expect(&shell, "got-this-3");
}

/// What is not listed is told to people, not to scripts.
#[tenure_testkit::test]
fn on_a_terminal_a_list_says_what_it_lacks() {
    let shell = shell();
    shell.send_line("$T ls no-such-*; echo code-$?");
    let heard = expect(&shell, "code-0");
    assert!(heard.contains("tenure: no locks; not listed: "), "{heard}");
}

#[tenure_testkit::test]
fn ctrl_c_reaches_the_command() {
    let shell = shell();
    shell.send_line("$T run tty-int -- sh -c 'trap \"echo heard; exit 9\" INT; echo run''ning; while :; do sleep 0.01; done'");
    expect(&shell, "running");
    shell.send_line("\u{3}");
    expect(&shell, "heard");
    shell.send_line("echo code-$?");
    expect(&shell, "code-9");
}

#[tenure_testkit::test]
fn ctrl_z_gives_the_shell_its_turn_and_fg_goes_on() {
    let shell = shell();
    shell.send_line("$T run tty-stop -- sh -c 'echo run''ning; while [ -z \"$word\" ]; do read word; done; echo got-$word'");
    expect(&shell, "running");
    let heard = press(&shell, "\u{1a}", "continue within");
    assert!(
        heard.contains("tenure: `tty-stop`: stopped; continue within "),
        "{heard}"
    );
    shell.send_line("echo shell-here");
    expect(&shell, "shell-here");
    shell.send_line("fg");
    shell.send_line("again");
    expect(&shell, "got-again");
    shell.send_line("echo code-$?");
    expect(&shell, "code-0");
}

#[tenure_testkit::test]
fn a_stopped_command_does_not_outlive_its_lease() {
    let shell = shell();
    // Not a child of the shell's: stopped between vfork and exec, it would keep its parent from
    // being stopped.
    shell.send_line("$T run -t 1 tty-late -- sh -c 'echo run''ning; exec sleep 60'");
    expect(&shell, "running");
    press(&shell, "\u{1a}", "continue within");
    let next = super::start(&["run", "-w", "20", "tty-late", "-c", "echo mine"]);
    assert_eq!(next.expect_line(SOON), "mine");
    shell.send_line("fg; echo code-$?");
    let heard = expect(&shell, "code-79");
    assert!(heard.contains("losing `tty-late`"), "{heard}");
}

#[tenure_testkit::test]
fn in_the_background_the_terminal_is_left_alone() {
    let shell = shell();
    shell.send_line("$T run tty-back -- sleep 1 & echo shell-$((1+1))");
    expect(&shell, "shell-2");
    shell.send_line("read word; echo shell-got-$word; wait %1; echo code-$?");
    shell.send_line("it");
    expect(&shell, "shell-got-it");
    expect(&shell, "code-0");
}

#[tenure_testkit::test]
fn waiting_is_shown_in_one_line_and_wiped_away() {
    let _holder = hold("tty-wait");
    let shell = shell();
    shell.send_line("$T run -w 2 tty-wait -- true; echo code-$?");
    let heard = expect(&shell, "code-75");
    let shown = "\r\u{1b}[Ktenure: waiting for `tty-wait`: held by ";
    assert!(heard.contains(shown), "{heard:?}");
    assert!(
        heard.contains("\r\u{1b}[Ktenure: `tty-wait` is held by "),
        "{heard:?}"
    );
}

#[tenure_testkit::test]
fn a_command_that_wants_a_terminal_that_nobody_gives_it_stands_still() {
    let shell = shell();
    // Its shell has ended, so its group is orphaned.
    shell.send_line(
        "( { sleep 0.3; exec $T run -t 5 tty-orphan -- sh -c 'echo run''ning-$$; read word; echo \
         got-$word'; } </dev/tty & )",
    );
    let heard = expect(&shell, "running-");
    let id = heard.trim().rsplit('-').next().unwrap();
    let id: u32 = id.parse().unwrap();
    expect(
        &shell,
        "tenure: `tty-orphan`: the command wants the terminal, which another process group has",
    );
    // It is not continued, and the lease is still renewed: another client cannot acquire it.
    let next = super::run(&["run", "-w", "6", "tty-orphan", "true"]);
    next.ended_with(75);
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    assert!(stat.contains(") T "), "{stat}");
    let warden = super::parent(id).unwrap();
    let wrapper = super::pid(super::parent(warden).unwrap());
    kill(wrapper, Signal::SIGKILL).unwrap();
    assert!(eventually(SOON, || !super::is_alive(id)));
    shell.send_line("echo shell-''here");
    let heard = expect(&shell, "shell-here");
    assert!(!heard.contains("wants the terminal"), "{heard}");
}
