//! A rule that was broken.

use std::fmt;

/// How many violations a failed test shows.
const SHOWN_MAX: usize = 10;

/// A broken rule and the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, in a few words.
    pub rule: &'static str,
    /// The lock, key or resource.
    pub subject: String,
    /// One item per line; usually two events.
    pub evidence: Vec<String>,
}

/// Panics with the first violations if there are any.
#[track_caller]
pub fn assert_none(violations: &[Violation]) {
    if violations.is_empty() {
        return;
    }
    let shown: Vec<String> = violations
        .iter()
        .take(SHOWN_MAX)
        .map(ToString::to_string)
        .collect();
    panic!("`{}` violations:\n{}", violations.len(), shown.join("\n"));
}

impl Violation {
    pub(crate) fn new(rule: &'static str, subject: &str, evidence: &[&dyn fmt::Display]) -> Self {
        Self {
            rule,
            subject: subject.into(),
            evidence: evidence.iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`", self.rule, self.subject)?;
        for line in &self.evidence {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}
