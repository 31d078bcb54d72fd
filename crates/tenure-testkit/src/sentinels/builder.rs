//! The settings of a deployment with sentinels.

use std::time::Duration;

use super::{MASTER_NAME, Sentinels};
use crate::server::{ADMIN_PASSWORD, ADMIN_USER, start_all};
use crate::tls::Certificates;
use crate::{ClockShim, Fsync, Proxy, RedisServer, ServerBuilder};

const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// A server that wrongly reports to be master is made a replica after four such periods. This must
/// not happen to a promoted one: the sentinel that promotes it checks only once a second whether the
/// promotion worked, and informs the others then.
const HELLO_PERIOD: Duration = Duration::from_millis(500);
/// Used before any promotion, so that sentinels find each other sooner.
const FIRST_HELLO_PERIOD: Duration = Duration::from_millis(50);
/// How often a sentinel polls its servers.
const POLL_PERIOD_MS: &str = "200";
/// A sentinel reconnects after this time. It must be shorter than the time after which a server is
/// considered down: otherwise a new master would look down while all sentinels reconnect to it.
/// A sentinel trusts its last information about a replica for five times this long, and polls only
/// once a second during a failover.
const PING_PERIOD_MS: &str = "300";
/// A failover is retried after twice this time. A sentinel takes up to a second to see that a
/// promotion worked, and gives up after this time.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// After this time a sentinel redirects a replica that follows an unknown address to its master. A
/// proxy is such an address, so this must not happen during a test.
const FAILOVER_TIMEOUT_PROXIED: Duration = Duration::from_secs(3600);
const STEADY_TIMEOUT: Duration = Duration::from_secs(60);

/// Builds and starts a deployment; see [`Sentinels::builder`].
#[derive(Debug, Clone)]
pub struct SentinelsBuilder {
    replicas: usize,
    down_after: Duration,
    failover_timeout: Duration,
    hello_period: Duration,
    proxied: bool,
    server: ServerBuilder,
    sentinel: ServerBuilder,
    sentinel_password: Option<String>,
    with_tls: bool,
    clocks: Vec<(usize, ClockShim)>,
    priorities: Vec<(usize, u32)>,
}

impl Default for SentinelsBuilder {
    fn default() -> Self {
        Self {
            replicas: 2,
            down_after: Duration::from_millis(500),
            failover_timeout: FAILOVER_TIMEOUT,
            hello_period: HELLO_PERIOD,
            proxied: false,
            server: RedisServer::builder(),
            sentinel: RedisServer::builder().sentinel(),
            sentinel_password: None,
            with_tls: false,
            clocks: Vec::new(),
            priorities: Vec::new(),
        }
    }
}

impl SentinelsBuilder {
    /// The number of replicas; two by default.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// How long a server may be silent before a sentinel considers it down; half a second by default.
    /// With much less, a new master may look down right after its promotion, because a sentinel takes
    /// 300 ms to connect to it (in production a second).
    #[must_use]
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Considers no server dead, however slow the machine is. For deployments whose servers no test
    /// kills, especially shared ones.
    #[must_use]
    pub fn steady(self) -> Self {
        self.down_after(STEADY_TIMEOUT)
    }

    /// A failed failover is retried after twice this time; two seconds by default. Below 1.5 seconds
    /// sentinels give up on promotions that succeed.
    #[must_use]
    pub fn failover_timeout(mut self, timeout: Duration) -> Self {
        self.failover_timeout = timeout;
        self
    }

    /// How often sentinels exchange information; every 500 ms by default, in production every 2 s.
    ///
    /// A master that comes back after its failover becomes a replica after four such periods. With much
    /// less than the default, newly promoted masters would become replicas too.
    #[must_use]
    pub fn hello_period(mut self, period: Duration) -> Self {
        self.hello_period = period;
        self
    }

    /// Sets a password for the default user of the data servers.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.server = self.server.password(password);
        self
    }

    /// Sets a password for the default user of the sentinels.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        let password = password.into();
        self.sentinel = self.sentinel.password(&password);
        self.sentinel_password = Some(password);
        self
    }

    /// Adds a user to the sentinels, such as `("alice", "on >secret &* +@all")`.
    #[must_use]
    pub fn sentinel_user(mut self, name: &str, rules: &str) -> Self {
        self.sentinel = self.sentinel.user(name, rules);
        self
    }

    /// Enables TLS between clients, servers and sentinels, with certificates from an authority for this
    /// deployment. The kit itself still uses the plain ports.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.with_tls = true;
        self
    }

    /// Whether TLS clients must present a certificate. They need not by default.
    #[must_use]
    pub fn auth_clients(mut self, demanded: bool) -> Self {
        self.server = self.server.auth_clients(demanded);
        self.sentinel = self.sentinel.auth_clients(demanded);
        self
    }

    /// Gives each data server an append-only file.
    #[must_use]
    pub fn aof(mut self, fsync: Fsync) -> Self {
        self.server = self.server.aof(fsync);
        self
    }

    /// A directive of `redis.conf` for all data servers.
    #[must_use]
    pub fn config(mut self, directive: impl Into<String>, value: impl Into<String>) -> Self {
        self.server = self.server.config(directive, value);
        self
    }

    /// Makes one data server use a clock that the test changes (keep a clone of it). The first master is
    /// server zero.
    #[must_use]
    pub fn clock(mut self, index: usize, clock: ClockShim) -> Self {
        self.clocks.push((index, clock));
        self
    }

    /// The `replica-priority` of one data server; 100 by default. Sentinel promotes the replica with the
    /// *lowest* number, even if others have more data. A replica with zero is never promoted.
    #[must_use]
    pub fn priority(mut self, index: usize, priority: u32) -> Self {
        self.priorities.push((index, priority));
        self
    }

    /// Makes each replica replicate through its own [`Proxy`], so that
    /// [`cut_replication`](Sentinels::cut_replication) can cut it.
    ///
    /// Only until the first failover: then Sentinel gives the replicas the new master's real address. It
    /// would do so even without a failover, after its `failover-timeout`, which is therefore an hour until
    /// [`kill_master`](Sentinels::kill_master) or
    /// [`wait_for_failover`](Sentinels::wait_for_failover) is called.
    #[must_use]
    pub fn proxied_replication(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Starts all processes and returns when they know each other and the replicas are in sync.
    #[track_caller]
    pub fn start(mut self) -> Sentinels {
        let certificates = self.with_tls.then(Certificates::generate);
        if let Some(Certificates { files, .. }) = &certificates {
            self.server = self.server.tls_among(files.clone());
            self.sentinel = self.sentinel.tls_among(files.clone());
        }
        let master = self.server(0).start();
        let links: Vec<Option<Proxy>> = (0..=self.replicas)
            .map(|index| (self.proxied && index > 0).then(|| Proxy::start(master.peer_addr())))
            .collect();
        let replicas = links[1..].iter().enumerate().map(|(index, link)| {
            let master_addr = link.as_ref().map_or(master.peer_addr(), Proxy::addr);
            self.server(index + 1).replica_of_addr(master_addr)
        });
        let sentinels = (0..SENTINELS).map(|_| self.sentinel(&master));
        let mut started = start_all(replicas.chain(sentinels).collect());

        let watchers = started.split_off(self.replicas);
        let mut servers = vec![master];
        servers.extend(started);
        let deployment = Sentinels {
            watchers,
            servers,
            links,
            sentinel_password: self.sentinel_password,
            failover_timeout: self.failover_timeout,
            certificates,
        };
        deployment.introduce_sentinels(self.hello_period);
        deployment
    }

    fn server(&self, index: usize) -> ServerBuilder {
        let mut setup = self.server.clone();
        for (_, clock) in self.clocks.iter().filter(|(at, _)| *at == index) {
            setup = setup.clock(clock.clone());
        }
        for (_, priority) in self.priorities.iter().filter(|(at, _)| *at == index) {
            setup = setup.config("replica-priority", priority.to_string());
        }
        setup
    }

    fn sentinel(&self, master: &RedisServer) -> ServerBuilder {
        let timeout = if self.proxied {
            FAILOVER_TIMEOUT_PROXIED
        } else {
            self.failover_timeout
        };
        let directives = [
            format!(
                "monitor {MASTER_NAME} 127.0.0.1 {} {QUORUM}",
                master.peer_port()
            ),
            format!("auth-user {MASTER_NAME} {ADMIN_USER}"),
            format!("auth-pass {MASTER_NAME} {ADMIN_PASSWORD}"),
            format!("sentinel-user {ADMIN_USER}"),
            format!("sentinel-pass {ADMIN_PASSWORD}"),
            format!(
                "down-after-milliseconds {MASTER_NAME} {}",
                self.down_after.as_millis()
            ),
            format!("failover-timeout {MASTER_NAME} {}", timeout.as_millis()),
            format!("parallel-syncs {MASTER_NAME} 1"),
        ];
        let setup = self.sentinel.clone();
        let setup = directives.iter().fold(setup, |setup, directive| {
            setup.config("sentinel", directive)
        });
        self.hurry(setup)
    }

    /// Speeds up a sentinel; no directive can set these periods.
    fn hurry(&self, setup: ServerBuilder) -> ServerBuilder {
        let hello_ms = self.hello_period.as_millis().to_string();
        setup
            .startup_command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", &hello_ms])
            .startup_command(&["SENTINEL", "DEBUG", "INFO-PERIOD", POLL_PERIOD_MS])
            .startup_command(&["SENTINEL", "DEBUG", "PING-PERIOD", PING_PERIOD_MS])
            // A sentinel does nothing for this long after a pause.
            .startup_command(&["SENTINEL", "DEBUG", "TILT-PERIOD", "1000"])
    }
}

impl Sentinels {
    /// Waits until the sentinels have found each other and all is settled.
    #[track_caller]
    fn introduce_sentinels(&self, hello_period: Duration) {
        self.set_hello_period(FIRST_HELLO_PERIOD.min(hello_period));
        self.expect_settled();
        self.set_hello_period(hello_period);
    }

    #[track_caller]
    fn set_hello_period(&self, period: Duration) {
        let period_ms = period.as_millis().to_string();
        for sentinel in &self.watchers {
            sentinel.run(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", &period_ms]);
        }
    }
}
