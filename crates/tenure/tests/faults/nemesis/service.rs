//! Servers that clients find by themselves: whether they are used, by what they say of it.

use std::time::Duration;

use tenure_testkit::{RedisServer, eventually};

/// How long clients may take to find a server that has got something to do.
const NOTICE_LIMIT: Duration = Duration::from_secs(3);

/// How often clients have asked a server for something about a lock.
pub(super) fn served(server: &RedisServer) -> u64 {
    server.command_calls("evalsha") + server.command_calls("exec")
}

/// Whether clients ask this server for something now.
pub(super) fn is_used(server: &RedisServer) -> bool {
    let before = served(server);
    eventually(NOTICE_LIMIT, || served(server) > before)
}

/// How often a server has sent clients elsewhere.
pub(super) fn redirections(server: &RedisServer) -> u64 {
    let stats = server.client().command(&["INFO", "errorstats"]);
    let counts = ["MOVED", "ASK", "TRYAGAIN"].map(|kind| {
        let prefix = format!("errorstat_{kind}:count=");
        let mut lines = stats.text().lines();
        let count = lines.find_map(|line| line.strip_prefix(&prefix)?.parse::<u64>().ok());
        count.unwrap_or(0)
    });
    counts.iter().sum()
}
