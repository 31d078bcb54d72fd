//! Failover to another master.

use std::time::Duration;

use super::report::find;
use super::{MASTER_NAME, SETTLE_LIMIT, Sentinels};
use crate::RedisServer;
use crate::wait::until_ok;

impl Sentinels {
    /// Makes a sentinel promote a replica although the master is healthy, and returns the new master when
    /// all is [settled](Self::wait_until_settled) and the old master is a replica.
    #[track_caller]
    pub fn failover(&self) -> &RedisServer {
        let old = self.begin_failover();
        let new = self.wait_for_failover(old, SETTLE_LIMIT);
        self.expect_settled();
        new
    }

    /// Like [`failover`](Self::failover), but returns the old master at once. It keeps serving for
    /// seconds, even while there is a new master, and then loses those writes.
    #[track_caller]
    pub fn begin_failover(&self) -> &RedisServer {
        let old = self.master();
        // `INPROG` during an earlier failover, `NOGOODSLAVE` until the sentinel has polled the
        // replicas recently.
        let begun = until_ok(SETTLE_LIMIT, || self.request_failover());
        if let Err(refusal) = begun {
            self.fail(&format!("no failover: {refusal}"));
        }
        old
    }

    /// Kills the master and returns it. See [`wait_for_failover`](Self::wait_for_failover).
    #[track_caller]
    pub fn kill_master(&self) -> &RedisServer {
        let master = self.master();
        master.kill();
        self.allow_retries();
        master
    }

    /// Waits until all sentinels report another master than `from`, and returns it; panics with their
    /// logs after `limit`. The other replicas may not follow it yet: see
    /// [`wait_until_settled`](Self::wait_until_settled).
    ///
    /// If `from` is healthy and its sentinels have aborted the failover, requests it again: on a busy
    /// machine one sentinel can demote the replica that another one has just promoted, or all of them can
    /// be too slow.
    #[track_caller]
    pub fn wait_for_failover(&self, from: &RedisServer, limit: Duration) -> &RedisServer {
        if !from.is_awake() {
            self.allow_retries();
        }
        let promoted = until_ok(limit, || {
            let master = self.agreed_master()?;
            if master.is(from) {
                if from.is_awake() && self.seen_as_healthy().is_ok() {
                    self.request_failover()?;
                }
                return Err(format!("`{}` is still the master", from.addr()));
            }
            match master.try_run(&["ROLE"])?.array()[0].text() {
                "master" => Ok(master),
                role => Err(format!("`{}` is still a `{role}`", master.addr())),
            }
        });
        promoted.unwrap_or_else(|error| {
            self.fail(&format!("no failover within `{limit:?}`: {error}"));
        })
    }

    /// Changes the `replica-priority` of a server and returns when all sentinels know it. Sentinel
    /// promotes the replica with the *lowest* number, however far it lags, and never one with zero.
    #[track_caller]
    pub fn set_priority(&self, index: usize, priority: u32) {
        let server = &self.servers[index];
        let priority = priority.to_string();
        server.set_config("replica-priority", &priority);
        let known = until_ok(SETTLE_LIMIT, || {
            // On a busy machine it may have been promoted meanwhile: then no sentinel lists it.
            if self.agreed_master()?.is(server) {
                return Ok(());
            }
            for sentinel in self.awake_sentinels() {
                let reports = Self::replica_reports(sentinel)?;
                let known = &find(&reports, server)?["slave-priority"];
                if *known != priority {
                    return Err(format!("`{}` knows `{known}`", sentinel.addr()));
                }
            }
            Ok(())
        });
        if let Err(error) = known {
            self.fail(&format!("priority of server `{index}`: {error}"));
        }
    }

    fn request_failover(&self) -> Result<(), String> {
        let sentinel = self.awake_sentinels().next().ok_or("no sentinel runs")?;
        let words = ["SENTINEL", "FAILOVER", MASTER_NAME];
        sentinel.try_run(&words).map(drop)
    }

    /// After a split vote sentinels retry after twice the `failover-timeout`, which is long with proxied
    /// links. While the master is down, a short one does not affect those links.
    fn allow_retries(&self) {
        let millis = self.failover_timeout.as_millis().to_string();
        for sentinel in self.awake_sentinels() {
            let words = ["SENTINEL", "SET", MASTER_NAME, "failover-timeout", &millis];
            sentinel.run(&words);
        }
    }
}
