//! The settings of a server.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::{ADMIN_PASSWORD, ADMIN_USER, Files, RedisServer, connect_as_admin, start};
use crate::{ClockShim, TlsFiles};

/// Builds and starts a server; see [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
pub struct ServerBuilder {
    pub(super) directives: Vec<(String, String)>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) auth_clients: bool,
    pub(super) unix_socket: bool,
    pub(super) clock: Option<ClockShim>,
    pub(super) mode: Mode,
    make_tls: bool,
    pub(super) tls_with: TlsWith,
    startup_commands: Vec<Vec<String>>,
}

/// The mode of `redis-server`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// A data server.
    #[default]
    Data,
    Sentinel,
}

/// The peers with which a server uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TlsWith {
    #[default]
    Clients,
    /// Clients and other servers.
    All,
}

/// When the append-only file reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before each reply.
    Always,
    /// Once a second.
    Everysec,
    /// When the operating system decides to.
    No,
}

impl ServerBuilder {
    /// Any directive of `redis.conf`, such as `("maxmemory", "2mb")`. Later ones win.
    ///
    /// `loglevel` must stay at `notice` or below, because the kit reads from the log when the server is
    /// ready.
    #[must_use]
    pub fn config(mut self, directive: impl Into<String>, value: impl Into<String>) -> Self {
        self.directives.push((directive.into(), value.into()));
        self
    }

    /// Enables the append-only file, so that [`RedisServer::restart`] reloads the data.
    #[must_use]
    pub fn aof(self, fsync: Fsync) -> Self {
        let fsync = match fsync {
            Fsync::Always => "always",
            Fsync::Everysec => "everysec",
            Fsync::No => "no",
        };
        self.config("appendonly", "yes")
            .config("appendfsync", fsync)
    }

    /// Sets a password for the default user.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user with ACL rules, such as `("alice", "on >secret ~orders:* +@all")`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.config("user", format!("{name} {rules}"))
    }

    /// Also listens for TLS on a second port, with given certificates.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Also listens for TLS on a second port, with certificates generated for this server.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.make_tls = true;
        self
    }

    /// Also uses TLS with the other servers of its deployment, all with the same certificates.
    pub(crate) fn tls_among(mut self, files: TlsFiles) -> Self {
        self.tls_with = TlsWith::All;
        self.tls(files).config("tls-replication", "yes")
    }

    /// Whether TLS clients must present a certificate. They need not by default.
    #[must_use]
    pub fn auth_clients(mut self, demanded: bool) -> Self {
        self.auth_clients = demanded;
        self
    }

    /// Also listens on a Unix socket.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Makes the server use a clock that the test changes (keep a clone of it).
    #[must_use]
    pub fn clock(mut self, clock: ClockShim) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Replicates `master`. See [`RedisServer::wait_for_master`].
    #[must_use]
    pub fn replica_of(self, master: &RedisServer) -> Self {
        self.replica_of_addr(master.addr())
    }

    /// Replicates the server of this kit at `addr`, for example behind a [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn replica_of_addr(self, addr: SocketAddr) -> Self {
        self.config("replicaof", format!("{} {}", addr.ip(), addr.port()))
    }

    /// Starts the server (`$REDIS_SERVER`, else `redis-server` from `PATH`) and returns when it answers;
    /// panics with its log if it does not.
    pub fn start(self) -> RedisServer {
        start(self)
    }

    /// Starts a sentinel instead of a data server.
    pub(crate) fn sentinel(mut self) -> Self {
        self.mode = Mode::Sentinel;
        self
    }

    /// A command to run after each start and restart, for settings without a directive.
    pub(crate) fn startup_command(mut self, words: &[&str]) -> Self {
        self.startup_commands
            .push(words.iter().map(ToString::to_string).collect());
        self
    }

    /// The log text that marks the server as ready.
    pub(super) fn ready_words(&self) -> &'static str {
        match self.mode {
            Mode::Data => "eady to accept connections",
            Mode::Sentinel => "Sentinel ID is",
        }
    }

    /// Runs the startup commands on a server that has just started.
    pub(super) fn run_startup_commands(&self, port: u16) -> Result<(), String> {
        if self.startup_commands.is_empty() {
            return Ok(());
        }
        let mut client = connect_as_admin(port)?;
        for words in &self.startup_commands {
            client
                .try_command(words)
                .map_err(|error| format!("`{}`: {error}", words.join(" ")))?;
        }
        Ok(())
    }

    /// Creates the files that the server needs before it starts.
    pub(super) fn prepare(&mut self, dir: &Path) {
        if self.make_tls {
            self.tls = Some(TlsFiles::generate(dir));
        }
    }

    /// The text of `redis.conf`.
    pub(super) fn conf(&self, files: &Files, port: u16, tls_port: Option<u16>) -> String {
        let mut conf = format!(
            "bind 127.0.0.1\nport {port}\ndaemonize no\nsave \"\"\ndir {}\n\
             enable-debug-command yes\nrepl-diskless-sync-delay 0\n\
             user {ADMIN_USER} on >{ADMIN_PASSWORD} ~* &* +@all\n\
             masteruser {ADMIN_USER}\nmasterauth {ADMIN_PASSWORD}\n",
            files.data().display()
        );
        if let Some(password) = &self.password {
            let _ = writeln!(conf, "requirepass {password}");
        }
        if self.unix_socket {
            let _ = writeln!(conf, "unixsocket {}", files.socket().display());
        }
        if let (Some(tls), Some(tls_port)) = (&self.tls, tls_port) {
            let demanded = if self.auth_clients { "yes" } else { "no" };
            let _ = write!(
                conf,
                "tls-port {tls_port}\ntls-ca-cert-file {}\ntls-cert-file {}\n\
                 tls-key-file {}\ntls-auth-clients {demanded}\n",
                tls.ca.display(),
                tls.cert.display(),
                tls.key.display()
            );
        }
        for (directive, value) in &self.directives {
            // Without quotes an empty value would be missing.
            let value = if value.is_empty() { "\"\"" } else { value };
            let _ = writeln!(conf, "{directive} {value}");
        }
        conf
    }
}
