//! `tenure completions`, `tenure man`, and what is written about the command.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::command::{run, tenure};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");

/// Write it anew after a change of the help: `TENURE_BLESS=1 cargo test -p tenure-cli --test it the_document_says`.
#[test]
fn the_document_says_what_the_command_says() {
    let ended = run(&mut tenure(&["man", "--markdown"]));
    ended.ended_with(0);
    if std::env::var_os("TENURE_BLESS").is_some() {
        fs::write(DOCUMENT, &ended.stdout).unwrap();
    }
    let written = fs::read_to_string(DOCUMENT).unwrap();
    let differs = |(written, said): &(&str, &str)| written != said;
    let first = written.lines().zip(ended.stdout.lines()).find(differs);
    assert_eq!(first, None, "docs/cli.md is old: TENURE_BLESS=1 writes it");
    assert_eq!(written.len(), ended.stdout.len(), "docs/cli.md is old");
}

#[test]
fn the_help_is_what_the_document_shows() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let headings = document
        .lines()
        .filter_map(|line| line.strip_prefix("### tenure"));
    let mut checked = 0;
    for command in headings {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let ended = run(tenure(&arguments).env("COLUMNS", "100"));
        ended.ended_with(0);
        let lines: Vec<&str> = ended.stdout.trim_end().lines().map(str::trim_end).collect();
        let shown = format!(
            "### tenure{command}\n\n```text\n{}\n```\n",
            lines.join("\n")
        );
        assert!(document.contains(&shown), "{command}\n{ended}");
        checked += 1;
    }
    assert!(checked > 40, "only {checked} commands were found");
}

#[test]
fn completions_are_what_their_shell_reads() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&mut tenure(&["completions", shell]));
        ended.ended_with(0);
        ended.says("force-unlock");
        ended.says("reconcile");
        assert!(
            !ended.stdout.contains("warden"),
            "{shell} completes what is hidden"
        );
        let again = run(&mut tenure(&["completions", shell]));
        assert_eq!(ended.stdout, again.stdout, "{shell}");
        let check = match shell {
            "bash" | "zsh" | "fish" => [shell, "-n"],
            _ => continue,
        };
        assert_accepted(&check, &ended.stdout);
    }
}

#[test]
fn bash_completes() {
    let script = run(&mut tenure(&["completions", "bash"])).stdout;
    let ask = "COMP_WORDS=(tenure sale it); COMP_CWORD=2; _tenure tenure it sale; echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash")
        .args(["-c", &format!("{script}\n{ask}")])
        .output();
    let bash = bash.unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "item\n", "{bash:?}");
}

#[test]
fn the_manual_page_has_recipes_and_exit_codes() {
    let ended = run(&mut tenure(&["man"]));
    ended.ended_with(0);
    for part in [
        ".TH tenure 1",
        ".SH \"RECIPES\"",
        ".SH \"EXIT CODES\"",
        ".SH \"ENVIRONMENT\"",
        "tenure\\-sale(1)",
    ] {
        ended.says(part);
    }
    assert!(!ended.stdout.contains("warden"), "{ended}");
    assert_formatted(&ended.stdout);
}

#[test]
fn every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man1");
    let ended = run(tenure(&["man", "--dir"]).arg(&man));
    ended.ended_with(0);
    assert_eq!(ended.stdout, "");
    let pages = fs::read_dir(&man).unwrap().map(|entry| entry.unwrap());
    let mut all = String::new();
    let mut names = Vec::new();
    for page in pages {
        all.push_str(&fs::read_to_string(page.path()).unwrap());
        names.push(page.file_name().into_string().unwrap());
    }
    for name in ["tenure.1", "tenure-run.1", "tenure-sale-order-submit.1"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    assert_formatted(&all);
}

#[test]
fn a_directory_that_cannot_be_written_is_told() {
    let ended = run(&mut tenure(&["man", "--dir", "/dev/null/man1"]));
    ended.ended_with(64);
    ended.complains("tenure: cannot write the manual pages: `/dev/null/man1`: ");
}

/// The formatter has nothing to say against a page, if there is one.
#[track_caller]
fn assert_formatted(page: &str) {
    assert!(page.is_ascii());
    assert_accepted(&["groff", "-man", "-Tutf8", "-ww"], page);
}

/// A program reads the text without complaint, if it is installed.
#[track_caller]
fn assert_accepted(program: &[&str], text: &str) {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{program:?}: {told}");
    assert_eq!(told, "", "{program:?}");
}
