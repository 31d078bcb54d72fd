//! `tenure man`: the manual pages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tenure_view::output;

use crate::exit::{Exit, Failed};
use crate::manual::{self, page};

const EXAMPLES: &str = "\
Examples:
  tenure man | man -l -
  tenure man --dir /usr/local/share/man/man1";

/// Print the manual page: recipes, configuration, exit codes
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ManArgs {
    /// Write this page and one page for each command to a directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print `docs/cli.md` instead
    #[arg(long, hide = true, conflicts_with = "dir")]
    markdown: bool,
}

pub fn run(args: &ManArgs) -> Result<Exit> {
    if let Some(dir) = &args.dir {
        return write_all(dir);
    }
    let text = if args.markdown {
        manual::markdown()
    } else {
        page::main(&manual::command())?
    };
    output::say(text.trim_end())?;
    Ok(Exit::Done)
}

fn write_all(dir: &Path) -> Result<Exit> {
    let shown = dir.display();
    fs::create_dir_all(dir)
        .map_err(|error| unwritable(&shown.to_string(), &error))
        .context("cannot write the manual pages")?;
    for (name, text) in page::all(&manual::command())? {
        let path = dir.join(&name);
        fs::write(&path, text)
            .map_err(|error| unwritable(&path.display().to_string(), &error))
            .context("cannot write the manual pages")?;
    }
    Ok(Exit::Done)
}

fn unwritable(path: &str, error: &std::io::Error) -> Failed {
    Failed::usage(format!("`{path}`: {error}"))
}
