//! One check: what was found, and what to do about it.

use std::fmt::Display;

use serde::Serialize;
use tenure_view::output::{Paint, Painted};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Warn,
    Bad,
    /// It could not be determined.
    Unknown,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub result: Verdict,
    pub found: String,
    /// What to do; `None` if all is well.
    pub advice: Option<String>,
}

impl Check {
    pub fn ok(name: &'static str, found: impl Display) -> Self {
        Self::new(name, Verdict::Ok, found, None)
    }

    pub fn warn(name: &'static str, found: impl Display, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warn, found, Some(advice.into()))
    }

    pub fn bad(name: &'static str, found: impl Display, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Bad, found, Some(advice.into()))
    }

    pub fn unknown(name: &'static str, found: impl Display, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Unknown, found, Some(advice.into()))
    }

    fn new(
        name: &'static str,
        result: Verdict,
        found: impl Display,
        advice: Option<String>,
    ) -> Self {
        let found = found.to_string();
        Self {
            name,
            result,
            found,
            advice,
        }
    }
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Unknown => "unknown",
        }
    }

    pub fn painted(self, paint: Paint, text: &str) -> Painted<'_> {
        match self {
            Self::Ok => paint.green(text),
            Self::Warn | Self::Unknown => paint.yellow(text),
            Self::Bad => paint.red(text),
        }
    }
}
