//! How many commands the servers executed, by their own count.

use anyhow::Result;
use tenure::redis::{Client, Command};
use tenure::{Error, ErrorKind};

/// Commands that the servers executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// All commands, including those inside scripts and transactions.
    pub commands: u64,
    /// Scripts and transactions: each is a round trip.
    pub round_trips: u64,
    /// Whether a server did not report its counts.
    is_blind: bool,
}

impl Meter {
    /// The counts since the servers started.
    pub async fn read(servers: &[Client]) -> Result<Self> {
        let mut meter = Self::default();
        for server in servers {
            match ask(server, "commandstats").await? {
                Some(stats) => meter.note(&stats),
                None => meter.is_blind = true,
            }
        }
        Ok(meter)
    }

    /// Adds the difference between two readings.
    pub fn add(&mut self, before: Self, after: Self) {
        self.commands += after.commands.saturating_sub(before.commands);
        self.round_trips += after.round_trips.saturating_sub(before.round_trips);
        self.is_blind |= before.is_blind || after.is_blind;
    }

    /// Commands and round trips per operation; None if unknown.
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    pub fn per(&self, count: u64) -> Option<(f64, f64)> {
        let per = |all: u64| all as f64 / count as f64;
        (!self.is_blind && count > 0).then(|| (per(self.commands), per(self.round_trips)))
    }

    fn note(&mut self, stats: &str) {
        for line in stats.lines() {
            let Some((name, rest)) = line.split_once(":calls=") else {
                continue;
            };
            let calls = rest.split(',').next().and_then(|calls| calls.parse().ok());
            let calls: u64 = calls.unwrap_or(0);
            match name.trim_start_matches("cmdstat_") {
                // Our own query.
                "info" => continue,
                "evalsha" | "eval" | "exec" => self.round_trips += calls,
                _ => {}
            }
            self.commands += calls;
        }
    }
}

/// How many connections the servers have, ours included; `None` if unknown.
pub async fn connected(servers: &[Client]) -> Result<Option<u64>> {
    let mut sum = 0;
    for server in servers {
        let Some(info) = ask(server, "clients").await? else {
            return Ok(None);
        };
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("connected_clients:"));
        sum += line
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0);
    }
    Ok(Some(sum))
}

/// A section of `INFO`; `None` if the user may not read it.
async fn ask(server: &Client, section: &str) -> Result<Option<String>, Error> {
    match server.run(Command::new("INFO").arg(section)).await {
        Ok(info) => Ok(info.as_str().map(ToOwned::to_owned)),
        Err(error) if error.kind() == ErrorKind::Denied => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_without_our_own_questions() {
        let mut meter = Meter::default();
        meter.note(
            "# Commandstats\r\ncmdstat_evalsha:calls=10,usec=5\r\ncmdstat_set:calls=20,usec=1",
        );
        meter.note("cmdstat_info:calls=3,usec=5\r\ncmdstat_exec:calls=2,usec=1");
        assert_eq!((meter.commands, meter.round_trips), (32, 12));
        let mut part = Meter::default();
        part.add(Meter::default(), meter);
        assert_eq!(part.per(16), Some((2.0, 0.75)));
        assert_eq!(part.per(0), None);
    }
}
