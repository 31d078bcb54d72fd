//! `tenure completions`, `tenure man`, and what is written about the command.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::command::{run, tenure};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");

/// Write it anew after a change of the help: `TENURE_BLESS=1 cargo test -p tenure-cli --test it the_document_says`.
#[tenure_testkit::test]
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

/// The document lists each option of the help: with its command, or among the common ones.
#[tenure_testkit::test]
fn the_document_has_the_options_of_the_help() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let (_, reference) = document.split_once("\n## Reference\n").unwrap();
    let mut sections = reference.split("\n### ").skip(1);
    let mut common = options(sections.next().unwrap());
    assert!(common.contains(&"--url") && common.contains(&"--ledger"));
    let mut checked = 0;
    for section in sections {
        let (name, shown) = section.split_once('\n').unwrap();
        let mut arguments: Vec<&str> = name.split_whitespace().skip(1).collect();
        arguments.push("--help");
        let ended = run(tenure(&arguments).env("COLUMNS", "100"));
        ended.ended_with(0);
        let (shown, told) = (options(shown), options(&ended.stdout));
        for option in &shown {
            assert!(told.contains(option), "`{name}` has no {option}");
        }
        let everywhere = ["--help", "--json"];
        for option in told.iter().filter(|it| !everywhere.contains(it)) {
            let listed = shown.contains(option) || common.contains(option);
            assert!(listed, "{option} of `{name}` is missing");
        }
        if name == "tenure run" {
            // `try` takes the same.
            common.extend(shown);
        }
        checked += 1;
    }
    assert!(checked > 30, "only {checked} commands were found");
}

/// The long options that lines begin with.
fn options(text: &str) -> Vec<&str> {
    // A description may have an option at the beginning of a line too, further to the right.
    let is_option = |line: &&str| {
        line.find('-')
            .is_some_and(|at| at <= 6 && line[..at].trim().is_empty())
    };
    let lines = text.lines().filter(is_option);
    let first = lines.filter_map(|line| {
        line.split_whitespace()
            .take(2)
            .find(|it| it.starts_with("--"))
    });
    first.map(|option| option.trim_end_matches(',')).collect()
}

#[tenure_testkit::test]
fn completions_are_what_their_shell_reads() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&mut tenure(&["completions", shell]));
        ended.ended_with(0);
        ended.says("force-unlock");
        ended.says("reconcile");
        for hidden in ["warden", "no-fork", "markdown"] {
            assert!(
                !ended.stdout.contains(hidden),
                "{shell} completes `{hidden}`"
            );
        }
        let again = run(&mut tenure(&["completions", shell]));
        assert_eq!(ended.stdout, again.stdout, "{shell}");
        let check = match shell {
            "bash" | "zsh" | "fish" => [shell, "-n"],
            _ => continue,
        };
        assert_accepted(&check, &ended.stdout);
    }
}

#[tenure_testkit::test]
fn completions_offer_no_option_that_is_refused() {
    let mut refused = Vec::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&mut tenure(&["completions", shell]));
        let offered = offered(shell, &ended.stdout);
        for known in [
            "-n",
            "-E",
            "-v",
            "-s",
            "--nonblock",
            "--shared",
            "--on-lost",
        ] {
            assert!(offered.contains(known), "{shell}: no {known}: {offered:?}");
        }
        let is_offered = |option: &&str| offered.contains(*option);
        refused.extend(REFUSED.into_iter().filter(is_offered).map(|it| (shell, it)));
    }
    assert_eq!(refused, []);
}

/// The options of `flock` that `tenure run` refuses with a reason. No other command has them.
const REFUSED: [&str; 5] = ["--unfair", "-F", "--no-fork", "-o", "--close"];

/// The options that a completion script offers, for any command.
fn offered(shell: &str, script: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in script.lines().map(str::trim_start) {
        match shell {
            "bash" => {
                let words = line.strip_prefix("opts=\"").unwrap_or_default();
                found.extend(words.split([' ', '"']).map(str::to_owned));
            }
            "zsh" => {
                let rest = line.strip_prefix('\'').unwrap_or_default();
                // `'(-q --quiet)-v[…'`: the options that it conflicts with come first.
                let rest = rest
                    .rsplit_once(")-")
                    .map_or(rest, |(other, _)| &rest[other.len() + 1..]);
                found.insert(option(rest.trim_start_matches('*')));
            }
            "fish" if line.starts_with("complete ") => {
                let (options, _) = line.split_once(" -d ").unwrap_or((line, ""));
                for (kind, dashes) in [(" -s ", "-"), (" -l ", "--")] {
                    let names = options.split(kind).skip(1);
                    found.extend(names.map(|name| format!("{dashes}{}", option(name))));
                }
            }
            "elvish" => found.extend(line.strip_prefix("cand ").map(option)),
            "powershell" => {
                found.extend(line.strip_prefix("[CompletionResult]::new('").map(option));
            }
            _ => {}
        }
    }
    found
}

/// The option at the beginning of a text.
fn option(text: &str) -> String {
    let is_end = |it: char| !it.is_ascii_alphanumeric() && it != '-';
    text.split(is_end).next().unwrap_or_default().to_owned()
}

#[tenure_testkit::test]
fn bash_completes() {
    let script = run(&mut tenure(&["completions", "bash"])).stdout;
    let ask = "COMP_WORDS=(tenure sale it); COMP_CWORD=2; _tenure tenure it sale; echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash")
        .args(["-c", &format!("{script}\n{ask}")])
        .output();
    let bash = bash.unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "item\n", "{bash:?}");
}

#[tenure_testkit::test]
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

#[tenure_testkit::test]
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

#[tenure_testkit::test]
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
