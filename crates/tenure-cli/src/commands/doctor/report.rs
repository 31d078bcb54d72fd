//! The result, for people and for programs.

use std::fmt::{self, Display};

use serde::Serialize;
use tenure_view::output::Paint;

use super::check::{Check, Verdict};

/// The result for all servers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether nothing is bad.
    pub fit: bool,
    /// Checks of all servers together.
    pub together: Vec<Check>,
    pub servers: Vec<ServerReport>,
}

/// The result for one server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    /// Its address, without user and password.
    pub server: String,
    pub checks: Vec<Check>,
}

impl Report {
    pub fn new(together: Vec<Check>, servers: Vec<ServerReport>) -> Self {
        let mut report = Self {
            fit: false,
            together,
            servers,
        };
        report.fit = report.count(Verdict::Bad) == 0;
        report
    }

    /// The report as text.
    pub fn in_words(&self, paint: Paint) -> impl Display {
        Words {
            report: self.clone(),
            paint,
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        let servers = self.servers.iter().flat_map(|server| &server.checks);
        let checks = servers.chain(&self.together);
        checks.filter(|check| check.result == verdict).count()
    }
}

struct Words {
    report: Report,
    paint: Paint,
}

impl Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for server in &self.report.servers {
            self.section(f, &server.server, &server.checks)?;
        }
        if !self.report.together.is_empty() {
            self.section(f, "together", &self.report.together)?;
        }
        self.conclusion(f)
    }
}

impl Words {
    fn section(&self, f: &mut fmt::Formatter<'_>, title: &str, checks: &[Check]) -> fmt::Result {
        writeln!(f, "{}", self.paint.bold(title))?;
        for check in checks {
            let word = format!("{:<7}", check.result.word());
            let word = check.result.painted(self.paint, &word);
            writeln!(f, "  {word}  {:<12} {}", check.name, check.found)?;
            if let Some(advice) = &check.advice {
                writeln!(f, "{:24}-> {advice}", "")?;
            }
        }
        writeln!(f)
    }

    fn conclusion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bad, warned, unknown) = (
            self.report.count(Verdict::Bad),
            self.report.count(Verdict::Warn),
            self.report.count(Verdict::Unknown),
        );
        let verdict = if self.report.fit {
            self.paint.green("fit for locks")
        } else {
            self.paint.red("not fit for locks")
        };
        write!(
            f,
            "{verdict}: {bad} bad, {warned} to consider, {unknown} unknown"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_readable_without_colour() {
        let server = ServerReport {
            server: "redis://h:6379/".to_owned(),
            checks: vec![
                Check::ok("version", "Redis 7.0.15"),
                Check::bad("role", "a replica", "connect to its primary"),
            ],
        };
        let report = Report::new(Vec::new(), vec![server]);
        assert_eq!(
            report.in_words(Paint::none()).to_string(),
            "redis://h:6379/\n\
             \x20 ok       version      Redis 7.0.15\n\
             \x20 bad      role         a replica\n\
             \x20                       -> connect to its primary\n\
             \n\
             not fit for locks: 1 bad, 0 to consider, 0 unknown"
        );
    }
}
