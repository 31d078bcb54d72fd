//! Compares the reports of the sentinels with the real state of the servers.

use std::collections::HashMap;

use super::{MASTER_NAME, SETTLE_LIMIT, Sentinels};
use crate::server::field_of;
use crate::wait::until_ok;
use crate::{RedisServer, Reply};

/// A sentinel's report on one server or sentinel: `flags`, `port` and so on.
type Report = HashMap<String, String>;

impl Sentinels {
    /// The master, if all running sentinels agree.
    pub(super) fn agreed_master(&self) -> Result<&RedisServer, String> {
        let mut named = Vec::new();
        for sentinel in self.awake_sentinels() {
            named.push(self.master_of(sentinel)?);
        }
        match named.split_first() {
            Some((first, others)) if others.iter().all(|other| other.is(first)) => Ok(first),
            Some(_) => Err("the sentinels report different masters".into()),
            None => Err("no sentinel runs".into()),
        }
    }

    /// Waits until all is settled; panics with the reason if that takes too long.
    #[track_caller]
    pub(super) fn expect_settled(&self) {
        if let Err(obstacle) = until_ok(SETTLE_LIMIT, || self.settled()) {
            self.fail(&format!("not settled: {obstacle}"));
        }
    }

    pub(super) fn awake_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.watchers.iter().filter(|sentinel| sentinel.is_awake())
    }

    /// `Err` describes what is not settled.
    pub(super) fn settled(&self) -> Result<(), String> {
        let master = self.agreed_master()?;
        self.seen_as_healthy()?;
        for server in self.servers.iter().filter(|one| one.is_awake()) {
            let role = self.has_its_role(server, master);
            role.map_err(|error| format!("server `{}`: {error}", server.addr()))?;
        }
        Ok(())
    }

    /// `Err` tells what a sentinel does not see as healthy, or that it fails over. Whether replicas are in
    /// sync does not count.
    pub(super) fn seen_as_healthy(&self) -> Result<(), String> {
        for sentinel in self.awake_sentinels() {
            let reports = self.is_seen_by(sentinel);
            reports.map_err(|error| format!("sentinel `{}`: {error}", sentinel.addr()))?;
        }
        Ok(())
    }

    /// Whether this server is the master, or follows it and is in sync.
    pub(super) fn has_its_role(
        &self,
        server: &RedisServer,
        master: &RedisServer,
    ) -> Result<(), String> {
        let info = server.try_run(&["INFO", "replication"])?;
        let field = |name| field_of(info.text(), name).unwrap_or_default();
        if server.is(master) {
            return match field("role") {
                "master" => Ok(()),
                role => Err(format!("is the master but reports `{role}`")),
            };
        }
        let port = field("master_port").parse();
        if !port.is_ok_and(|port| self.leads_to(port, server, master)) {
            return Err("does not follow the master".into());
        }
        match field("master_link_status") {
            "up" => Ok(()),
            status => Err(format!("its link is `{status}`")),
        }
    }

    /// This sentinel's reports on all servers except the master.
    pub(super) fn replica_reports(sentinel: &RedisServer) -> Result<Vec<Report>, String> {
        reports(sentinel, "REPLICAS")
    }

    fn master_of(&self, sentinel: &RedisServer) -> Result<&RedisServer, String> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME];
        let reply = sentinel.try_run(&words)?;
        let [host, port] = reply.array() else {
            return Err(format!("not an address: `{reply:?}`"));
        };
        let addr = format!("{}:{}", host.text(), port.text());
        let mut servers = self.servers.iter();
        servers
            .find(|server| server.peer_addr().to_string() == addr)
            .ok_or_else(|| format!("a sentinel reports an unknown server: `{addr}`"))
    }

    /// Whether this sentinel sees all running servers and sentinels as healthy.
    fn is_seen_by(&self, sentinel: &RedisServer) -> Result<(), String> {
        let words = ["SENTINEL", "MASTER", MASTER_NAME];
        let master = report(&sentinel.try_run(&words)?);
        expect_healthy(&master)?;
        let master_port = &master["port"];
        let replicas = Self::replica_reports(sentinel)?;
        let awake = self.servers.iter().filter(|server| server.is_awake());
        for server in awake.filter(|server| server.peer_port().to_string() != *master_port) {
            let replica = find(&replicas, server)?;
            expect_healthy(replica)?;
            expect_known_as_replica(replica)?;
        }
        let sentinels = reports(sentinel, "SENTINELS")?;
        for other in self.awake_sentinels().filter(|other| !other.is(sentinel)) {
            expect_healthy(find(&sentinels, other)?)?;
        }
        Ok(())
    }
}

fn reports(sentinel: &RedisServer, of: &str) -> Result<Vec<Report>, String> {
    let reply = sentinel.try_run(&["SENTINEL", of, MASTER_NAME])?;
    Ok(reply.array().iter().map(report).collect())
}

/// Parses alternating names and values.
fn report(reply: &Reply) -> Report {
    let pairs = reply.array().chunks_exact(2);
    pairs
        .map(|pair| (pair[0].text().into(), pair[1].text().into()))
        .collect()
}

pub(super) fn find<'a>(reports: &'a [Report], server: &RedisServer) -> Result<&'a Report, String> {
    let port = server.peer_port().to_string();
    let found = reports.iter().find(|report| report["port"] == port);
    found.ok_or_else(|| format!("does not know `{}`", server.addr()))
}

/// A sentinel that last saw this server as a master, before the failover that demoted it, demotes it
/// again when it sees it promoted, and so aborts that failover.
fn expect_known_as_replica(report: &Report) -> Result<(), String> {
    match report["role-reported"].as_str() {
        "slave" => Ok(()),
        role => Err(format!("last saw `{}` as a `{role}`", report["port"])),
    }
}

/// Other flags are roles, or other nodes' opinions of the master.
fn expect_healthy(report: &Report) -> Result<(), String> {
    let flags = &report["flags"];
    let is_failure = |flag| {
        matches!(
            flag,
            "s_down" | "o_down" | "disconnected" | "failover_in_progress"
        )
    };
    if flags.split(',').any(is_failure) {
        return Err(format!("sees `{}` as `{flags}`", report["port"]));
    }
    Ok(())
}
