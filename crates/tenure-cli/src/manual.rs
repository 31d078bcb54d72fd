//! The manual: what the command says of itself, as pages and as one document.
//!
//! Recipes, configuration and exit codes are written by hand in `manual/head.md`; options and examples
//! stand beside each command. Both go into the manual page and into `docs/cli.md`.

pub mod page;
mod roff;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::args::Args;

/// What was written by hand.
const HEAD: &str = include_str!("manual/head.md");
/// As wide as the help is in documents, whatever terminal it was made on.
const WIDTH: usize = 100;

/// The command line without what is hidden: some shells would complete it.
pub fn command() -> Command {
    let whole = Args::command();
    let hidden = |command: &&Command| !command.is_hide_set();
    let visible: Vec<Command> = whole.get_subcommands().filter(hidden).cloned().collect();
    let mut command = Command::new("tenure")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(visible);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = whole.get_after_long_help() {
        command = command.after_long_help(after.clone());
    }
    command.build();
    command
}

/// `docs/cli.md`: the head, and the help of every command.
pub fn markdown() -> String {
    let mut text = HEAD.trim_end().to_owned();
    text.push_str("\n\n## Reference\n\nWhat `--help` says. `tenure man` prints manual pages.\n");
    let mut whole = Args::command();
    whole.build();
    for command in every(&whole) {
        let name = command.get_bin_name().unwrap_or("tenure").to_owned();
        let help = command.term_width(WIDTH).render_long_help().to_string();
        let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        // Writing to a string cannot fail.
        let _ = write!(text, "\n### {name}\n\n```text\n{}\n```\n", lines.join("\n"));
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
