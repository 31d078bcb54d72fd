//! A master, its replicas, and the sentinels that choose the next master.

mod builder;
mod failover;
mod report;

use std::time::Duration;

pub use builder::SentinelsBuilder;

use crate::server::log_tails;
use crate::tls::Certificates;
use crate::wait::until_ok;
use crate::{Proxy, RedisServer, TlsFiles};

/// What the sentinels call the master they watch.
const MASTER_NAME: &str = "mymaster";
/// How long anything that is not bound to fail may take on a crowded machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// One master with replicas (two by default), watched by three sentinels of whom two must agree.
/// All are real processes on `127.0.0.1`, killed when dropped.
///
/// The sentinels look at the servers and talk to each other every few hundred milliseconds instead
/// of every few seconds, so that a failover takes about a second after a master was found to be
/// down; see [`hello_period`](SentinelsBuilder::hello_period). Everything else is as in production.
///
/// The servers are counted from zero in [`servers`](Self::servers), and keep their numbers whoever
/// is master. Each can be [paused](RedisServer::pause), [killed](RedisServer::kill) and
/// [restarted](RedisServer::restart) by itself. A master that was replaced meanwhile comes back as
/// a master, until Sentinel tells it after about two seconds; one that comes back so quickly that
/// nobody noticed stays the master, and without an [append-only file](SentinelsBuilder::aof) makes
/// its replicas as empty as itself. What Sentinel has told a server is still true after a restart,
/// for Sentinel lets it rewrite its configuration.
#[derive(Debug)]
pub struct Sentinels {
    /// Before the servers, so that no failover is begun while those are taken down.
    watchers: Vec<RedisServer>,
    servers: Vec<RedisServer>,
    /// For each server the link to its first master, where that was asked for.
    links: Vec<Option<Proxy>>,
    sentinel_password: Option<String>,
    failover_timeout: Duration,
    /// Those of all servers and sentinels, if they speak TLS.
    certificates: Option<Certificates>,
}

impl Sentinels {
    /// Starts a master with two replicas and three sentinels.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A deployment with settings of one's own.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// `redis-sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/mymaster`, with the password
    /// of the data servers before the addresses and `?sentinel_password=` behind the name, if they
    /// were set. With TLS `rediss-sentinel://`, the ports for that, and `?ca=PATH`.
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

    /// What the sentinels call the master: `mymaster`.
    pub fn name(&self) -> &'static str {
        MASTER_NAME
    }

    /// The server that all sentinels call the master now, dead or alive. Waits while they disagree.
    #[track_caller]
    pub fn master(&self) -> &RedisServer {
        let agreed = until_ok(SETTLE_LIMIT, || self.agreed_master());
        agreed.unwrap_or_else(|error| self.fail(&error))
    }

    /// All servers that keep data, the first master first.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// All servers but the [`master`](Self::master), dead ones included.
    #[track_caller]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let master = self.master();
        let others = self.servers.iter();
        others.filter(|server| !server.is(master)).collect()
    }

    /// The sentinels. They can be paused, killed and restarted as any server; a restart finds again
    /// what the sentinel knew.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.watchers
    }

    /// The number of a server in [`servers`](Self::servers).
    #[track_caller]
    pub fn index_of(&self, server: &RedisServer) -> usize {
        let found = self.servers.iter().position(|own| own.is(server));
        found.unwrap_or_else(|| panic!("`{}` is not one of these servers", server.addr()))
    }

    /// Waits until all that run agree: the sentinels on the master and on who is there, and every
    /// other server follows that master. `false` if they do not within `limit`.
    pub fn wait_until_settled(&self, limit: Duration) -> bool {
        until_ok(limit, || self.settled()).is_ok()
    }

    /// Waits until every replica that runs has what the master has now; `false` if they do not
    /// within `limit`, for example because a link is cut.
    #[track_caller]
    pub fn wait_for_sync(&self, limit: Duration) -> bool {
        let master = self.master();
        // Taken once: the sentinels' own messages move it all the time.
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

    /// The proxy that a server replicates through, to delay or hold what goes through it: *requests*
    /// come from the replica, *replies* from its master.
    ///
    /// Panics if the deployment was built without [proxied
    /// links](SentinelsBuilder::proxied_replication), for the first master, which replicated
    /// nobody, and when the server no longer uses it, because Sentinel has told it to replicate
    /// another master. Sentinel names masters directly.
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

    /// Swallows everything between a replica and its master, both of which go on as if nothing had
    /// happened: what is written from now on is not on this replica.
    #[track_caller]
    pub fn cut_replication(&self, index: usize) {
        self.replication_link(index).black_hole();
    }

    /// The end of [`cut_replication`](Self::cut_replication): the replica connects anew.
    #[track_caller]
    pub fn heal_replication(&self, index: usize) {
        let link = self.links[index].as_ref();
        link.expect("the server has a proxied link").heal();
    }

    /// Whether `port` is where this server finds that master.
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
