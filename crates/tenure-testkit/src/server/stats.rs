//! Statistics of a server.

use std::time::Duration;

use super::RedisServer;
use crate::wait::eventually;

impl RedisServer {
    /// A field of `INFO everything` as text, such as `redis_version`; panics if there is none.
    #[track_caller]
    pub fn info(&self, field: &str) -> String {
        match self.find_info(field) {
            Some(value) => value,
            None => self.fail(&format!("`INFO` has no field `{field}`")),
        }
    }

    /// An integer field of `INFO`, such as `total_commands_processed`. The kit's own commands count too:
    /// each call is an `AUTH` and an `INFO`.
    #[track_caller]
    pub fn stat(&self, field: &str) -> u64 {
        let value = self.info(field);
        value
            .parse()
            .unwrap_or_else(|_| panic!("`{field}` is not an integer: `{value}`"))
    }

    /// How often a command was called since the start or [`reset_stats`](Self::reset_stats), including
    /// calls from scripts. Subcommands are named like `config|set`.
    #[track_caller]
    pub fn command_calls(&self, command: &str) -> u64 {
        let field = format!("cmdstat_{}", command.to_lowercase());
        let Some(stats) = self.find_info(&field) else {
            return 0;
        };
        let calls = stats
            .split(',')
            .find_map(|stat| stat.strip_prefix("calls="));
        calls
            .and_then(|calls| calls.parse().ok())
            .unwrap_or_else(|| panic!("no calls in `{stats}`"))
    }

    /// Resets the counters of `INFO` to zero.
    #[track_caller]
    pub fn reset_stats(&self) {
        self.run(&["CONFIG", "RESETSTAT"]);
    }

    /// Waits until this replica's link to its master is up; `false` if it is not within `limit`.
    #[track_caller]
    pub fn wait_for_master(&self, limit: Duration) -> bool {
        eventually(limit, || self.master_link().as_deref() == Some("up"))
    }

    /// The state of this replica's link to its master: `up` or `down`. `None` while it is no replica:
    /// promoted, or not yet assigned to a master.
    #[track_caller]
    pub fn master_link(&self) -> Option<String> {
        self.find_info("master_link_status")
    }

    #[track_caller]
    fn find_info(&self, field: &str) -> Option<String> {
        let info = self.run(&["INFO", "everything"]);
        field_of(info.text(), field).map(ToString::to_string)
    }
}

/// The value of `field` in lines of the form `field:value`, as in `INFO`.
pub(crate) fn field_of<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == field)
        .map(|(_, value)| value)
}
