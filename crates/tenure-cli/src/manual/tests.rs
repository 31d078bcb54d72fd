//! What is written about the command is true of it.

use clap::Parser as _;
use clap::error::ErrorKind;

use super::*;

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "docs/cli.md",
    "docs/command.md",
    "docs/demo.md",
    "docs/migrating.md",
    "docs/sales.md",
    "docs/service.md",
];

#[test]
fn every_command_says_what_it_does_in_one_line() {
    for command in every(&command()) {
        let name = command.get_bin_name().unwrap_or("tenure").to_owned();
        let about = command.get_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        assert!(!about.is_empty(), "`{name}` says nothing");
        assert!(
            !about.contains('\n') && about.len() <= 80,
            "`{name}`: {about}"
        );
    }
}

#[test]
fn every_option_is_explained() {
    for command in every(&command()) {
        for argument in command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set())
        {
            let help = argument.get_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let name = command.get_bin_name().unwrap_or("tenure");
            assert!(
                !help.is_empty(),
                "`{name}`: `{}` is not explained",
                argument.get_id()
            );
        }
    }
}

#[test]
fn every_command_has_examples_of_itself() {
    for command in every(&command()) {
        let name = command.get_bin_name().unwrap_or("tenure");
        let after = command.get_after_long_help().map(ToString::to_string);
        let after = after.unwrap_or_default();
        assert!(after.starts_with("Examples:\n"), "`{name}` has no examples");
        assert!(after.contains(name), "no example of `{name}` is one");
        assert!(
            command.get_after_help().is_none(),
            "the short help of `{name}` is long"
        );
    }
}

#[test]
fn exit_codes_are_the_same_in_the_help_and_in_the_manual() {
    let help = command().get_after_long_help().unwrap().to_string();
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    for line in codes.lines() {
        let code = line.split_whitespace().next().unwrap();
        assert!(
            HEAD.contains(&format!("| {code} |")),
            "{code} is not in the manual"
        );
    }
}

/// Each line of a document that runs the command is understood by it.
#[test]
fn what_documents_tell_to_type_can_be_typed() {
    let mut checked = 0;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(format!("{root}/{document}")).unwrap();
        for line in lines_of_code(&text) {
            let Some(words) = typed(&line) else {
                continue;
            };
            checked += 1;
            let parsed = Args::try_parse_from(&words);
            let refused = parsed.err().filter(|error| !is_fine(error.kind(), &words));
            assert!(
                refused.is_none(),
                "{document}: {line}\n{words:?}\n{refused:?}"
            );
        }
    }
    assert!(checked > 30, "only {checked} lines were found");
}

#[test]
fn lines_are_read_as_a_shell_reads_them() {
    for (line, words) in [
        (
            "  tenure demo --list    what there is",
            "tenure|demo|--list",
        ),
        ("$ A=1 tenure demo 2>/dev/null | head", "tenure|demo"),
        (
            "x=$(tenure sale order ls --buyer 'a b')",
            "tenure|sale|order|ls|--buyer|a b",
        ),
        (
            "ExecStart=/usr/bin/tenure sale consume",
            "tenure|sale|consume",
        ),
        ("tenure man \"$X\" # why", "tenure|man|$X"),
    ] {
        assert_eq!(typed(line).unwrap().join("|"), words);
    }
    for line in [
        "Usage: tenure sale [OPTIONS]",
        "tenure: waiting",
        "my-tenure demo",
        "tenure is good",
        "or `tenure sale consume`.",
    ] {
        assert_eq!(typed(line), None, "{line}");
    }
}

/// Help is no error, and a command that is only named needs no arguments.
fn is_fine(kind: ErrorKind, words: &[String]) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let named = |word: &String| !word.starts_with('-') && word.chars().all(plain);
    let is_named = words[1..].iter().all(named);
    match kind {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand => is_named && words.len() <= 4,
        _ => false,
    }
}

/// The lines inside code, continued ones joined, and code inside lines.
fn lines_of_code(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_code = false;
    let mut whole = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let inline = line.split('`').skip(1).step_by(2);
            lines.extend(inline.map(|code| code.replace("\\|", "|")));
        } else if let Some(begun) = line.strip_suffix('\\') {
            whole.push_str(begun);
        } else {
            whole.push_str(line);
            lines.push(std::mem::take(&mut whole));
        }
    }
    lines
}

/// The words of the command in a line of shell, of a unit or of a crontab, if it runs it.
fn typed(line: &str) -> Option<Vec<String>> {
    if line.trim_start().starts_with("Usage:") {
        return None;
    }
    let starts = line.match_indices("tenure ").map(|(at, _)| at);
    let begins = |at: &usize| *at == 0 || line[..*at].ends_with([' ', '(', '/', '=']);
    let at = starts.into_iter().find(begins)?;
    // As the shell would put its own process there.
    let words = words(&line[at..].replace("$$", "1"));
    command().find_subcommand(words.get(1)?)?;
    Some(words)
}

/// Splits as a shell would, up to the end of the command or to what explains it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                words.extend(word.take());
                // Two spaces separate the command from its explanation.
                if letters.peek() == Some(&' ') {
                    break;
                }
            }
            (None, '#') if word.is_none() => break,
            (None, '>') => {
                // The number of what is redirected.
                word = word.filter(|word| !word.chars().all(|letter| letter.is_ascii_digit()));
                break;
            }
            (None, '|' | '&' | ';' | '<' | ')') => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
