//! The configuration file: for settings that crontabs and units need not repeat, and that `ps` does
//! not show.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::exit::Failed;

/// The contents of the file. Command line and environment take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the locks are: one URL, or those of independent servers.
    #[serde(default)]
    url: Urls,
    /// A file with the server's password in its first line.
    pub password_file: Option<PathBuf>,
    /// What all keys and channels begin with.
    pub prefix: Option<String>,
    /// The name of this client in listings.
    pub client_name: Option<String>,
    /// How long a lease lasts without renewal, as in `30s`.
    pub ttl: Option<String>,
    /// The longest lease that any client uses on several servers.
    pub longest_ttl: Option<String>,
    /// Where the orders of sales are written.
    pub ledger: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Urls {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Config {
    /// Reads the file that was named, by option or `TENURE_CONFIG`, or the first of the usual ones.
    ///
    /// The working directory is not among them: two processes in different directories would lock
    /// on different servers and never notice.
    pub fn read(named: Option<&Path>) -> Result<Self> {
        let variable = || env::var_os("TENURE_CONFIG").filter(|path| !path.is_empty());
        let named = named
            .map(Path::to_owned)
            .or_else(|| variable().map(PathBuf::from));
        if let Some(path) = named {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| unreadable(&path, &error))?;
            return Self::parse(&path, &text);
        }
        for path in usual_places() {
            match fs::read_to_string(&path) {
                Ok(text) => return Self::parse(&path, &text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&path, &error).into()),
            }
        }
        Ok(Self::default())
    }

    pub fn urls(&self) -> Vec<String> {
        match &self.url {
            Urls::None => Vec::new(),
            Urls::One(url) => vec![url.clone()],
            Urls::Several(urls) => urls.clone(),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let parsed = toml::from_str(text).map_err(|error| {
            // Not the error's own text: it shows the line, which may contain a password.
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| 1 + before.matches('\n').count());
            Failed::config(format!("line {line}: {}", without_value(error.message())))
        });
        parsed.with_context(|| format!("cannot use the configuration file `{}`", path.display()))
    }
}

/// What was expected, not what was found: that may be a secret in the wrong place.
fn without_value(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let found = message.starts_with("invalid type") || message.starts_with("invalid value");
    match message.split_once(", expected ") {
        Some((_, expected)) if found => format!("expected {expected}"),
        _ if message.contains("any variant of untagged enum") => {
            "expected a string or a list of strings".to_owned()
        }
        _ => message.to_owned(),
    }
}

fn usual_places() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    let of_user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let of_user = of_user.map(|directory| directory.join("tenure/config.toml"));
    of_user
        .into_iter()
        .chain([PathBuf::from("/etc/tenure.toml")])
        .collect()
}

fn unreadable(path: &Path, error: &io::Error) -> Failed {
    let path = path.display();
    Failed::config(format!(
        "cannot read the configuration file `{path}`: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn told(text: &str) -> String {
        let refused = Config::parse(Path::new("t.toml"), text).unwrap_err();
        format!("{refused:#}")
    }

    #[test]
    fn a_file_says_what_there_is() {
        let text = "url = [\"a\", \"b\"]\npassword_file = \"p\"\nttl = \"1m\"\nprefix = \"t:\"\nledger = \"sqlite:x\"\n";
        let config = Config::parse(Path::new("t.toml"), text).unwrap();
        assert_eq!(config.urls(), ["a", "b"]);
        assert_eq!(config.password_file, Some("p".into()));
        assert_eq!(config.ttl.as_deref(), Some("1m"));
        assert_eq!(config.prefix.as_deref(), Some("t:"));
        assert_eq!(config.ledger.as_deref(), Some("sqlite:x"));
        let one = Config::parse(Path::new("t.toml"), "url = \"a\"").unwrap();
        assert_eq!(one.urls(), ["a"]);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_not_by_its_value() {
        let whole = "cannot use the configuration file `t.toml`: line ";
        for (text, told_of) in [
            (
                "url = \"a\"\n\npasword = \"secret\"\n",
                "3: unknown field `pasword`",
            ),
            ("ttl = [\"secret\"]", "1: expected a string"),
            ("\nclient_name = 5678", "2: expected a string"),
            (
                "url = { secret = \"secret\" }",
                "1: expected a string or a list",
            ),
            ("url = \"secret", "1: "),
            ("password_file = secret", "1: "),
            ("url = \"a\"\nsecret", "2: "),
            ("ttl = \"1\"\nttl = \"secret\"", "2: duplicate key"),
        ] {
            let told = told(text);
            assert!(
                told.starts_with(&format!("{whole}{told_of}")),
                "{text}\n{told}"
            );
            for secret in ["\"secret", "= secret", "`secret`", "5678"] {
                assert!(!told.contains(secret), "{text}\n{told}");
            }
        }
    }
}
