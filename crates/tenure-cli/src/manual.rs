//! The manual: the command's own description, as man pages and as `docs/cli.md`.
//!
//! Recipes, configuration and exit codes are written by hand in `manual/head.md`; each command defines
//! its options and examples. Man pages have every option in full. `docs/cli.md` lists the common
//! options once, and the others in one line each.

pub mod page;
mod roff;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use crate::args::Args;

/// The part written by hand.
const HEAD: &str = include_str!("manual/head.md");
/// The width of help texts in documents, independent of the terminal.
const WIDTH: usize = 100;
/// The help heading of options that all commands with a server share.
const SERVER: &str = "Server";

const COMMON: &str = "\
Every command that uses a server takes these. `--ledger` is for `tenure sale` and `tenure serve`.
Most commands also take `--json`, see [Output](#output), and all take `--help`.
`tenure try` takes the options of `tenure run`.
";

/// The command line without hidden commands and options: shells would complete them.
pub fn command() -> Command {
    let mut command = without_hidden(&Args::command()).version(env!("CARGO_PKG_VERSION"));
    command.build();
    command
}

/// `docs/cli.md`: the head, the common options, and the short help of every command.
pub fn markdown() -> String {
    let mut text = HEAD.trim_end().to_owned();
    text.push_str("\n\n## Reference\n\n");
    text.push_str("In short. `tenure COMMAND --help` and `tenure man` say more.\n");
    section(
        &mut text,
        "Common options",
        COMMON,
        &common_options(&Args::command()),
    );
    let mut whole = abridged(Args::command());
    whole.build();
    let mut shown = HashSet::new();
    for command in every(&whole).into_iter().filter(|it| !is_covered(it)) {
        let name = command.get_bin_name().unwrap_or("tenure").to_owned();
        let examples = examples(&command);
        let mut help = command.term_width(WIDTH).render_help().to_string();
        if shown.insert(examples.clone()) {
            help = format!("{}\n\n{examples}", help.trim_end());
        }
        section(&mut text, &name, "", &help);
    }
    text
}

/// A command and all below it, in the order in which the help lists them.
pub fn every(command: &Command) -> Vec<Command> {
    let mut found = vec![command.clone()];
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    for below in command.get_subcommands().filter(shown) {
        found.extend(every(below));
    }
    found
}

/// Rebuilds a command from its visible parts: clap cannot remove an option.
fn without_hidden(command: &Command) -> Command {
    let hidden = |command: &&Command| !command.is_hide_set();
    let arguments = command.get_arguments().filter(|it| !it.is_hide_set());
    let mut visible = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .subcommand_required(command.is_subcommand_required_set())
        .args_conflicts_with_subcommands(command.is_args_conflicts_with_subcommands_set())
        .args(arguments)
        .subcommands(command.get_subcommands().filter(hidden).map(without_hidden));
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        visible = visible.long_about(about.clone());
    }
    if let Some(after) = command.get_after_long_help() {
        visible = visible.after_long_help(after.clone());
    }
    visible
}

/// Hides the options that the document lists once. `try` has those of `run`.
fn abridged(command: Command) -> Command {
    let is_try = command.get_name() == "try";
    let hide_common = |argument: Arg| {
        let is_common = is_server(&argument) || argument.get_id() == "json";
        let is_hidden = argument.is_hide_set() || (is_try && !argument.is_positional());
        argument.hide(is_common || is_hidden)
    };
    command
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .mut_args(hide_common)
        .mut_subcommands(abridged)
}

/// Whether the list of its group covers a command: it has no options of its own.
fn is_covered(command: &Command) -> bool {
    let name = command.get_bin_name().unwrap_or_default();
    let is_in_group = name.split_whitespace().count() > 3;
    let is_own = |argument: &&Arg| !argument.is_positional() && !argument.is_hide_set();
    is_in_group && !command.get_arguments().any(|it| is_own(&it))
}

/// The server options of all commands, as described by the first command that has them.
fn common_options(whole: &Command) -> String {
    let mut ids = HashSet::new();
    let mut common = Command::new("tenure")
        .disable_help_flag(true)
        .help_template("{all-args}")
        .term_width(WIDTH);
    for command in every(whole) {
        for argument in command.get_arguments().filter(|it| is_server(it)) {
            if ids.insert(argument.get_id().clone()) {
                common = common.arg(argument.clone());
            }
        }
    }
    common.render_help().to_string()
}

fn is_server(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(SERVER)
}

/// The examples at the start of the text after the long help.
fn examples(command: &Command) -> String {
    let after = command.get_after_long_help().map(ToString::to_string);
    let after = after.unwrap_or_default();
    let mut parts = after.split("\n\n");
    let first = parts.next().unwrap_or_default();
    let rest = parts.take_while(|part| part.starts_with("  "));
    [first]
        .into_iter()
        .chain(rest)
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn section(text: &mut String, heading: &str, introduction: &str, code: &str) {
    let lines: Vec<&str> = code.trim().lines().map(str::trim_end).collect();
    let gap = if introduction.is_empty() { "" } else { "\n" };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n### {heading}\n\n{introduction}{gap}```text\n{}\n```\n",
        lines.join("\n")
    );
}
