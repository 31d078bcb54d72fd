//! Output: results on stdout, messages on stderr, colour only on a terminal.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::printable::{printable, printable_json};

/// Prints a line of a result.
pub fn say(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Prints a result for programs, on one line.
pub fn say_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    say(printable_json(&text))
}

/// Prints a line to stderr: [`printable`], because it may quote what others wrote. Errors are ignored:
/// there is no other place to report them.
pub fn complain(line: impl Display) {
    let line = printable(&line.to_string());
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Puts colour on words, or leaves them as they are.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    is_on: bool,
}

/// Text with its colour.
#[derive(Debug)]
pub struct Painted<'a> {
    text: &'a str,
    code: Option<&'static str>,
}

impl Paint {
    /// Colour if stdout is a terminal that can show it and `NO_COLOR` does not forbid it.
    pub fn for_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            is_on: io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb,
        }
    }

    /// No colour.
    pub fn none() -> Self {
        Self { is_on: false }
    }

    /// Red: something is wrong.
    pub fn red(self, text: &str) -> Painted<'_> {
        self.paint(text, "1;31")
    }

    /// Green: as it should be.
    pub fn green(self, text: &str) -> Painted<'_> {
        self.paint(text, "1;32")
    }

    /// Yellow: a warning.
    pub fn yellow(self, text: &str) -> Painted<'_> {
        self.paint(text, "1;33")
    }

    /// Bold.
    pub fn bold(self, text: &str) -> Painted<'_> {
        self.paint(text, "1")
    }

    fn paint<'a>(self, text: &'a str, code: &'static str) -> Painted<'a> {
        let code = self.is_on.then_some(code);
        Painted { text, code }
    }
}

impl Display for Painted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "\x1b[{code}m{}\x1b[0m", self.text),
            None => f.write_str(self.text),
        }
    }
}
