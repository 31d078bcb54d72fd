//! The gate's server: one, or a master that can be replaced.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::{ClientKind, RedisServer, Sentinels, eventually};

use super::{Kind, random_time};

pub(super) const NOTICE_LIMIT: Duration = Duration::from_millis(500);
/// How long a failover may take, and all that follows from it.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
/// For writes that do not reach a replica which is cut off.
pub(super) const LAG_MS: std::ops::Range<u64> = 100..600;
const CUT_LIMIT: Duration = Duration::from_secs(3);
/// Longer than a replica needs to connect once it has shown its password.
const HANDSHAKE: Duration = Duration::from_millis(50);

/// Injects the fault, undoes it; true if a client asked the server meanwhile.
pub(super) fn strike(kind: Kind, server: &RedisServer, rng: &mut StdRng) -> bool {
    match kind {
        Kind::KillServer => {
            server.kill();
            thread::sleep(random_time(rng) / 2);
            server.restart();
            is_used(server)
        }
        Kind::PauseServer => {
            server.pause();
            thread::sleep(random_time(rng));
            server.resume();
            is_used(server)
        }
        Kind::ScriptFlush => {
            server.script_flush();
            eventually(NOTICE_LIMIT, || server.stat("number_of_cached_scripts") > 0)
        }
        Kind::OutOfMemory => {
            let before = oom_count(server);
            server.fill_memory();
            thread::sleep(random_time(rng) / 2);
            server.free_memory();
            oom_count(server) > before
        }
        Kind::KillConnections => server.kill_clients(ClientKind::Normal) > 0,
        other => unreachable!("`{}` is not done to the server", other.name()),
    }
}

/// Injects the fault, undoes it; true if a client asked the new master.
pub(super) fn strike_sentinels(kind: Kind, sentinels: &Sentinels, rng: &mut StdRng) -> bool {
    match kind {
        Kind::PlannedFailover => {
            let old = sentinels.begin_failover();
            let new = sentinels.wait_for_failover(old, SETTLE_LIMIT);
            let used = is_used(new);
            sentinels.wait_until_settled(SETTLE_LIMIT) && used
        }
        Kind::KillMaster => kill_master(sentinels, Vec::new(), rng),
        // The replicas lag: what the master acknowledges from here on is lost with it.
        Kind::CutThenKill => {
            let master = sentinels.master();
            let replicas = sentinels.replicas();
            let cuts: Option<Vec<_>> = replicas.iter().map(|it| Cut::between(it, master)).collect();
            let Some(cuts) = cuts else { return false };
            thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
            kill_master(sentinels, cuts, rng)
        }
        kind => strike(kind, sentinels.master(), rng),
    }
}

/// Kills the master, and brings it back when there is another one, as well as links that were cut.
fn kill_master(sentinels: &Sentinels, cuts: Vec<Cut<'_>>, rng: &mut StdRng) -> bool {
    let old = sentinels.kill_master();
    let new = sentinels.wait_for_failover(old, SETTLE_LIMIT);
    drop(cuts);
    let used = is_used(new);
    thread::sleep(random_time(rng));
    old.restart();
    sentinels.wait_until_settled(SETTLE_LIMIT) && used
}

/// A replica that no longer hears its master, and can be promoted nevertheless. Healed when dropped.
pub(super) struct Cut<'a> {
    replica: &'a RedisServer,
    password: String,
}

impl<'a> Cut<'a> {
    /// `None` if it cannot be cut: on a crowded machine it may just be promoted.
    pub(super) fn between(replica: &'a RedisServer, master: &RedisServer) -> Option<Self> {
        let password = replica.client().command(&["CONFIG", "GET", "masterauth"]);
        let password = password.array()[1].text().to_owned();
        replica.set_config("masterauth", "not-the-password");
        let cut = Self { replica, password };
        // One that was just about to connect had shown the right password already: twice.
        let is_cut = || {
            let mut master = master.client();
            master.command(&["CLIENT", "KILL", "TYPE", "replica"]);
            thread::sleep(HANDSHAKE);
            let info = replica.client().command(&["INFO", "replication"]);
            info.text().contains("master_link_status:down")
        };
        let is_cut = eventually(CUT_LIMIT, is_cut) && eventually(CUT_LIMIT, is_cut);
        is_cut.then_some(cut)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.replica.set_config("masterauth", &self.password);
        // Sentinel may have had the wrong one written down meanwhile.
        self.replica.client().command(&["CONFIG", "REWRITE"]);
    }
}

/// Whether processes of the sale ask this server for something now.
pub(super) fn is_used(server: &RedisServer) -> bool {
    let before = server.command_calls("evalsha");
    eventually(SETTLE_LIMIT / 4, || {
        server.command_calls("evalsha") > before
    })
}

fn oom_count(server: &RedisServer) -> u64 {
    error_count(server, "OOM")
}

/// How often the server has replied with an error that begins so.
pub(super) fn error_count(server: &RedisServer, word: &str) -> u64 {
    let info = server.client().command(&["INFO", "errorstats"]);
    let begins = format!("errorstat_{word}:count=");
    let mut lines = info.text().lines();
    let count = lines.find_map(|line| line.strip_prefix(&begins));
    count.map_or(0, |count| count.parse().unwrap())
}
