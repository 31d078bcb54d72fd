//! Manual pages.

use std::io;

use anyhow::Result;
use clap::Command;
use clap_mangen::Man;

use super::{HEAD, every, roff};

/// The page of the whole command.
pub fn main(command: &Command) -> Result<String> {
    let man = man(command);
    let mut page = opening(&man)?;
    // The part written by hand explains more than the help does.
    let (introduction, rest) = HEAD.split_at(HEAD.find("\n## ").unwrap_or(HEAD.len()));
    page.extend(b".SH DESCRIPTION\n");
    page.extend(roff::of_markdown(introduction).bytes());
    man.render_subcommands_section(&mut page)?;
    page.extend(roff::of_markdown(rest).bytes());
    Ok(roff::ascii(&String::from_utf8(page)?))
}

/// All pages by the names of their files.
pub fn all(command: &Command) -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for part in every(command) {
        let name = part.get_bin_name().unwrap_or("tenure").replace(' ', "-");
        let text = if part.get_name() == "tenure" {
            main(&part)?
        } else {
            of_part(&part)?
        };
        pages.push((format!("{name}.1"), text));
    }
    Ok(pages)
}

fn of_part(command: &Command) -> Result<String> {
    let man = man(command);
    let mut page = opening(&man)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut text = String::from_utf8(page)?;
    if let Some(after) = command.get_after_long_help() {
        text.push_str(&roff::of_help(&after.to_string()));
    }
    text.push_str(".SH \"SEE ALSO\"\n.BR tenure (1)\n");
    Ok(roff::ascii(&text))
}

fn man(command: &Command) -> Man {
    Man::new(command.clone()).source(concat!("tenure ", env!("CARGO_PKG_VERSION")))
}

fn opening(man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    Ok(page)
}
