//! `tenure completions`: completion scripts for shells.

use anyhow::Result;
use clap_complete::Shell;
use tenure_view::output;

use crate::exit::Exit;
use crate::manual;

const EXAMPLES: &str = "\
Examples:
  tenure completions bash > /etc/bash_completion.d/tenure
  tenure completions zsh > ~/.zfunc/_tenure            with `fpath+=~/.zfunc` before `compinit`
  tenure completions fish > ~/.config/fish/completions/tenure.fish
  eval \"$(tenure completions bash)\"                    for this shell only";

/// Print a completion script for a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut manual::command(), "tenure", &mut script);
    output::say(String::from_utf8(script)?.trim_end())?;
    Ok(Exit::Done)
}
