//! What the sentinels say of each other and of the servers, compared with the truth.

use std::collections::HashMap;

use super::{MASTER_NAME, SETTLE_LIMIT, Sentinels};
use crate::server::field_of;
use crate::wait::until_ok;
use crate::{RedisServer, Reply};

/// What a sentinel says of one server or sentinel: `flags`, `port` and so on.
type Report = HashMap<String, String>;

impl Sentinels {
    /// The master, if all sentinels that run name the same.
    pub(super) fn agreed_master(&self) -> Result<&RedisServer, String> {
        let mut named = Vec::new();
        for sentinel in self.awake_sentinels() {
            named.push(self.master_of(sentinel)?);
        }
        match named.split_first() {
            Some((first, others)) if others.iter().all(|other| other.is(first)) => Ok(first),
            Some(_) => Err("the sentinels name different masters".into()),
            None => Err("no sentinel runs".into()),
        }
    }

    /// Waits until all is settled; panics with what is in the way if that takes too long.
    #[track_caller]
    pub(super) fn expect_settled(&self) {
        if let Err(obstacle) = until_ok(SETTLE_LIMIT, || self.settled()) {
            self.fail(&format!("not settled: {obstacle}"));
        }
    }

    pub(super) fn awake_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.watchers.iter().filter(|sentinel| sentinel.is_awake())
    }

    /// `Err` says who is not where it belongs.
    pub(super) fn settled(&self) -> Result<(), String> {
        let master = self.agreed_master()?;
        for sentinel in self.awake_sentinels() {
            let reports = self.is_seen_by(sentinel);
            reports.map_err(|error| format!("sentinel `{}`: {error}", sentinel.addr()))?;
        }
        for server in self.servers.iter().filter(|one| one.is_awake()) {
            let role = self.has_its_role(server, master);
            role.map_err(|error| format!("server `{}`: {error}", server.addr()))?;
        }
        Ok(())
    }

    /// Whether this server is the master, or follows it and has all of it.
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

    /// What this sentinel says of the servers besides the master.
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
            .ok_or_else(|| format!("a sentinel names a stranger: `{addr}`"))
    }

    /// Whether this sentinel sees everybody who runs, and nothing wrong with them.
    fn is_seen_by(&self, sentinel: &RedisServer) -> Result<(), String> {
        let words = ["SENTINEL", "MASTER", MASTER_NAME];
        let master = report(&sentinel.try_run(&words)?);
        expect_well(&master)?;
        let master_port = &master["port"];
        let replicas = Self::replica_reports(sentinel)?;
        let awake = self.servers.iter().filter(|server| server.is_awake());
        for server in awake.filter(|server| server.peer_port().to_string() != *master_port) {
            expect_well(find(&replicas, server)?)?;
        }
        let sentinels = reports(sentinel, "SENTINELS")?;
        for other in self.awake_sentinels().filter(|other| !other.is(sentinel)) {
            expect_well(find(&sentinels, other)?)?;
        }
        Ok(())
    }
}

fn reports(sentinel: &RedisServer, of: &str) -> Result<Vec<Report>, String> {
    let reply = sentinel.try_run(&["SENTINEL", of, MASTER_NAME])?;
    Ok(reply.array().iter().map(report).collect())
}

/// Names and values, which a sentinel sends one after the other.
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

/// Other flags than these are roles, or what somebody else thinks of the master.
fn expect_well(report: &Report) -> Result<(), String> {
    let flags = &report["flags"];
    let is_trouble = |flag| {
        matches!(
            flag,
            "s_down" | "o_down" | "disconnected" | "failover_in_progress"
        )
    };
    if flags.split(',').any(is_trouble) {
        return Err(format!("sees `{}` as `{flags}`", report["port"]));
    }
    Ok(())
}
