//! The location of a ledger.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteSynchronous;

use crate::error::{Error, ErrorKind, Result};

/// The target of a URL.
#[derive(Clone)]
pub(super) enum Place {
    /// `sqlite::memory:`
    Memory,
    /// `sqlite:path`
    File {
        path: PathBuf,
        synchronous: SqliteSynchronous,
    },
    /// `postgres://user@host/database`
    Postgres(Box<PgConnectOptions>),
}

impl Place {
    pub(super) fn of_url(url: &str) -> Result<Self> {
        if let Some(rest) = url.strip_prefix("sqlite:") {
            return file(rest.strip_prefix("//").unwrap_or(rest));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            // The cause is reported without the URL, which may contain a password.
            return PgConnectOptions::from_str(url)
                .map(|options| Self::Postgres(Box::new(options)))
                .map_err(|error| wrong(&format!("{error}")));
        }
        let scheme = url.split(':').next().unwrap_or_default();
        let shown: String = scheme.chars().take(32).collect();
        Err(wrong(&format!(
            "unknown kind of ledger `{}`",
            shown.escape_debug()
        )))
    }
}

/// Without the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("sqlite::memory:"),
            Self::File { path, .. } => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or(options.get_username());
                let (host, port) = (options.get_host(), options.get_port());
                write!(f, "postgres://{host}:{port}/{database}")
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn file(rest: &str) -> Result<Place> {
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let mut synchronous = SqliteSynchronous::Full;
    for parameter in parameters.split('&').filter(|text| !text.is_empty()) {
        synchronous = match parameter {
            "synchronous=full" => SqliteSynchronous::Full,
            "synchronous=normal" => SqliteSynchronous::Normal,
            other => {
                let cause = format!(
                    "unknown parameter `{other}`; use `synchronous=full` or `synchronous=normal`"
                );
                return Err(wrong(&cause));
            }
        };
    }
    match path {
        "" => Err(wrong("it has no file name")),
        ":memory:" => Ok(Place::Memory),
        path => Ok(Place::File {
            path: path.into(),
            synchronous,
        }),
    }
}

fn wrong(cause: &str) -> Error {
    let message = format!(
        "invalid ledger URL: {cause}; use for example `sqlite:sale.db`, \
         `sqlite::memory:` or `postgres://user@host/database`"
    );
    Error::new(ErrorKind::InvalidUrl, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_without_its_password() {
        let place = Place::of_url("postgres://shop:geheim@db.example:5433/sale").unwrap();
        assert_eq!(place.to_string(), "postgres://db.example:5433/sale");
        assert_eq!(format!("{place:?}"), "postgres://db.example:5433/sale");
    }

    #[test]
    fn urls_that_mean_nothing_are_refused_without_a_secret() {
        for url in [
            "mysql://root:geheim@host/db",
            "postgres://shop:geheim@host:port/db",
            "sqlite:",
            "sqlite:sale.db?mode=geheim",
            "geheim",
            "",
        ] {
            let error = Place::of_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            let told = error.to_string();
            assert!(!told.contains(":geheim@"), "{told}");
        }
    }

    #[test]
    fn files_are_named_with_and_without_slashes() {
        for (url, path) in [
            ("sqlite:sale.db", "sale.db"),
            ("sqlite:///tmp/sale.db", "/tmp/sale.db"),
            ("sqlite:/tmp/sale.db?synchronous=normal", "/tmp/sale.db"),
        ] {
            let place = Place::of_url(url).unwrap();
            assert_eq!(place.to_string(), format!("sqlite:{path}"));
        }
    }
}
