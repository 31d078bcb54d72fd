//! A master, its replicas, and the sentinels that elect the next master.

mod builder;
mod failover;
mod report;

use std::time::Duration;

pub use builder::SentinelsBuilder;

use crate::server::log_tails;
use crate::tls::Certificates;
use crate::wait::until_ok;
use crate::{Proxy, RedisServer, TlsFiles};

/// The name of the monitored master.
const MASTER_NAME: &str = "mymaster";
/// Time limit for steps that must succeed, even on a busy machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// One master with replicas (two by default), monitored by three sentinels with a quorum of two. All
/// are real processes on `127.0.0.1`, killed when dropped.
///
/// The sentinels poll the servers and talk to each other every few hundred milliseconds instead of
/// every few seconds, so that a failover takes about a second once a master is considered down; see
/// [`hello_period`](SentinelsBuilder::hello_period). Everything else is as in production.
///
/// The servers are counted from zero in [`servers`](Self::servers), and keep their numbers whichever
/// is master. Each can be [paused](RedisServer::pause), [killed](RedisServer::kill) and
/// [restarted](RedisServer::restart) separately. A master that was replaced meanwhile restarts as a
/// master, until Sentinel makes it a replica after about two seconds. A master that restarts before
/// Sentinel notices stays the master, and without an [append-only file](SentinelsBuilder::aof) it
/// empties its replicas. A role set by Sentinel survives a restart, because Sentinel makes the server
/// rewrite its configuration.
#[derive(Debug)]
pub struct Sentinels {
    /// Declared before the servers, so that no failover begins while those are killed.
    watchers: Vec<RedisServer>,
    servers: Vec<RedisServer>,
    /// For each server the link to its first master, if requested.
    links: Vec<Option<Proxy>>,
    sentinel_password: Option<String>,
    failover_timeout: Duration,
    /// Shared by all servers and sentinels, with TLS.
    certificates: Option<Certificates>,
}

impl Sentinels {
    /// Starts a master with two replicas and three sentinels.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Builds a deployment with custom settings.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// `redis-sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/mymaster`, with the password of the
    /// data servers before the addresses and `?sentinel_password=` after the name, if they were set.
    /// With TLS: `rediss-sentinel://`, the TLS ports, and `?ca=PATH`.
    pub fn url(&self) -> String {
        let credentials = self.servers[0].credentials();
        let addrs = self.watchers.iter().map(|one| one.peer_addr().to_string());
        let addrs = addrs.collect::<Vec<_>>().join(",");
        let tls = self.certificates.is_some();
        let scheme = if tls { "rediss" } else { "redis" };
        let password = self.sentinel_password.iter();
        let password = password.map(|password| format!("sentinel_password={password}"));
        let certificates = tls.then(|| self.servers[0].tls_parameters());
        let parameters: Vec<String> = certificates.into_iter().chain(password).collect();
        let url = format!("{scheme}-sentinel://{credentials}{addrs}/{MASTER_NAME}");
        match &parameters[..] {
            [] => url,
            _ => format!("{url}?{}", parameters.join("&")),
        }
    }

    /// The certificates in use. Panics if the deployment was built without TLS.
    #[track_caller]
    pub fn tls_files(&self) -> &TlsFiles {
        let certificates = self.certificates.as_ref();
        &certificates.expect("the deployment has no tls").files
    }

    /// The name of the monitored master: `mymaster`.
    pub fn name(&self) -> &'static str {
        MASTER_NAME
    }

    /// The current master according to all sentinels, dead or alive. Waits while they disagree.
    #[track_caller]
    pub fn master(&self) -> &RedisServer {
        let agreed = until_ok(SETTLE_LIMIT, || self.agreed_master());
        agreed.unwrap_or_else(|error| self.fail(&error))
    }

    /// All data servers, the first master first.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// All servers except the [`master`](Self::master), including dead ones.
    #[track_caller]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let master = self.master();
        let others = self.servers.iter();
        others.filter(|server| !server.is(master)).collect()
    }

    /// The sentinels. They can be paused, killed and restarted like any server; a sentinel keeps its
    /// state across a restart.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.watchers
    }

    /// The number of a server in [`servers`](Self::servers).
    #[track_caller]
    pub fn index_of(&self, server: &RedisServer) -> usize {
        let found = self.servers.iter().position(|own| own.is(server));
        found.unwrap_or_else(|| panic!("`{}` is not one of these servers", server.addr()))
    }

    /// Waits until all running sentinels agree on the master and the other servers, and every other
    /// server follows that master. `false` if that takes longer than `limit`.
    pub fn wait_until_settled(&self, limit: Duration) -> bool {
        until_ok(limit, || self.settled()).is_ok()
    }

    /// Waits until every running replica has the master's current data; `false` if that takes longer
    /// than `limit`, for example because a link is cut.
    #[track_caller]
    pub fn wait_for_sync(&self, limit: Duration) -> bool {
        let master = self.master();
        // Read once: the sentinels' own messages increase it continuously.
        let offset = master.stat("master_repl_offset");
        let replicas = self.servers.iter().filter(|one| one.is_awake());
        let replicas: Vec<_> = replicas.filter(|one| !one.is(master)).collect();
        let synced = until_ok(limit, || {
            for replica in &replicas {
                self.has_its_role(replica, master)?;
                if replica.stat("slave_repl_offset") < offset {
                    return Err(format!("`{}` lags", replica.addr()));
                }
            }
            Ok(())
        });
        synced.is_ok()
    }

    /// The proxy that a server replicates through, to delay or hold its traffic: *requests* come from the
    /// replica, *replies* from its master.
    ///
    /// Panics if the deployment was built without [proxied
    /// links](SentinelsBuilder::proxied_replication), for the first master, and when the server no longer
    /// uses the proxy because Sentinel has redirected it. Sentinel uses the real addresses of masters.
    #[track_caller]
    pub fn replication_link(&self, index: usize) -> &Proxy {
        let link = self.links[index].as_ref();
        let link = link.unwrap_or_else(|| panic!("server `{index}` has no proxied link"));
        assert!(
            self.servers[index].stat("master_port") == u64::from(link.addr().port()),
            "server `{index}` no longer replicates through its proxy"
        );
        link
    }

    /// Drops everything between a replica and its master, and neither notices: the replica gets no later
    /// writes.
    #[track_caller]
    pub fn cut_replication(&self, index: usize) {
        self.replication_link(index).black_hole();
    }

    /// Undoes [`cut_replication`](Self::cut_replication): the replica reconnects.
    #[track_caller]
    pub fn heal_replication(&self, index: usize) {
        let link = self.links[index].as_ref();
        link.expect("the server has a proxied link").heal();
    }

    /// Whether this replica reaches that master on `port`.
    fn leads_to(&self, port: u16, replica: &RedisServer, master: &RedisServer) -> bool {
        let link = self.links[self.index_of(replica)].as_ref();
        let by_link = link.is_some_and(|link| link.addr().port() == port);
        port == master.peer_port() || (by_link && master.is(&self.servers[0]))
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let all = self.watchers.iter().chain(&self.servers);
        panic!("{what}\n{}", log_tails(all));
    }
}
