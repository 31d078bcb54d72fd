//! The URL of a store. It has its own parser, which names the part that is wrong and never puts a
//! password into a message.

use std::fmt;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::prefix::Prefix;
use crate::seeded::{Bug, bug};
use crate::sharded::Sharded;

pub use self::masked::masked_url;

mod grammar;
mod masked;
mod parameters;
#[cfg(test)]
mod tests;

/// The target of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Memory {
        name: Option<String>,
        prefix: Option<Prefix>,
    },
    Redis(RedisTarget),
    Sentinel(SentinelTarget),
    Cluster(ClusterTarget),
}

/// A primary with replicas, and the Sentinels that report which server is the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelTarget {
    /// In the order of the URL, with their own credentials.
    pub(crate) sentinels: Vec<RedisTarget>,
    /// The Sentinels' name for the primary (`master` in the URL).
    pub(crate) master: String,
    /// The credentials and settings for the primary, whichever server that is. Its name is used in
    /// place of its address.
    pub(crate) server: RedisTarget,
}

/// Some nodes of a Cluster, which know the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterTarget {
    pub(crate) nodes: Vec<RedisTarget>,
    /// As set in the URL.
    pub(crate) sharded: Option<Sharded>,
}

/// One Redis server, with credentials and settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisTarget {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u32,
    /// As set in the URL.
    pub(crate) layout: Option<Layout>,
    /// As set in the URL.
    pub(crate) prefix: Option<Prefix>,
    /// How long a connection that owes a reply may stay silent.
    pub(crate) response_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, tls: Tls },
    Unix(PathBuf),
}

/// The trusted CA, and the client's own certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Accept any certificate. Only by an explicit `#insecure`.
    pub(crate) insecure: bool,
}

/// A password. It prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where it points, without user and password.
impl fmt::Display for RedisTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match address {
            Address::Tcp { .. } => write!(f, "redis://{address}/")?,
            Address::Tls { .. } => write!(f, "rediss://{address}/")?,
            Address::Unix(_) => write!(f, "unix://{address}")?,
        }
        if let (true, Some(password)) = (bug(Bug::PasswordInError), &self.password) {
            f.write_str(password.reveal())?;
        }
        match (&self.address, self.database) {
            (_, 0) => Ok(()),
            (Address::Unix(_), database) => write!(f, "?db={database}"),
            (_, database) => write!(f, "{database}"),
        }
    }
}

/// Where it points, without users and passwords.
impl fmt::Display for SentinelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = matches!(self.server.address, Address::Tls { .. });
        f.write_str(if tls {
            "rediss-sentinel://"
        } else {
            "redis-sentinel://"
        })?;
        write_hosts(f, &self.sentinels)?;
        write!(f, "/{}", self.master)?;
        match self.server.database {
            0 => Ok(()),
            database => write!(f, "/{database}"),
        }
    }
}

/// Where it points, without user and password.
impl fmt::Display for ClusterTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = |node: &RedisTarget| matches!(node.address, Address::Tls { .. });
        let tls = self.nodes.first().is_some_and(tls);
        f.write_str(if tls {
            "rediss-cluster://"
        } else {
            "redis-cluster://"
        })?;
        write_hosts(f, &self.nodes)
    }
}

fn write_hosts(f: &mut fmt::Formatter<'_>, targets: &[RedisTarget]) -> fmt::Result {
    for (i, target) in targets.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(f, "{comma}{}", target.address)?;
    }
    Ok(())
}

/// `host:port`, or the path of a socket.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port, .. } if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Tcp { host, port } | Self::Tls { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl RedisTarget {
    /// The same credentials and settings for another server of the same deployment.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let host = host.to_owned();
        let address = match &self.address {
            Address::Tls { tls, .. } => Address::Tls {
                host,
                port,
                tls: tls.clone(),
            },
            Address::Tcp { .. } | Address::Unix(_) => Address::Tcp { host, port },
        };
        Self {
            address,
            ..self.clone()
        }
    }

    /// The layout, or the default if the URL does not set it.
    pub(crate) fn layout(&self) -> Layout {
        self.layout.unwrap_or_default()
    }
}

impl Target {
    /// The servers with locks that the URL names, with their settings.
    pub(crate) fn lock_servers_mut(&mut self) -> &mut [RedisTarget] {
        match self {
            Self::Memory { .. } => &mut [],
            Self::Redis(server) => slice::from_mut(server),
            Self::Sentinel(target) => slice::from_mut(&mut target.server),
            Self::Cluster(cluster) => &mut cluster.nodes,
        }
    }

    /// The prefix, if the URL sets one.
    pub(crate) fn prefix(&mut self) -> Option<Prefix> {
        match self {
            Self::Memory { prefix, .. } => prefix.clone(),
            _ => self.lock_servers_mut().first()?.prefix.clone(),
        }
    }

    /// Sets the prefix of everything that is written there.
    pub(crate) fn set_prefix(&mut self, prefix: &Prefix) {
        if let Self::Memory { prefix: said, .. } = self {
            *said = Some(prefix.clone());
        }
        for server in self.lock_servers_mut() {
            server.prefix = Some(prefix.clone());
        }
    }

    pub(crate) fn parse(url: &str) -> Result<Self> {
        let wrong = |cause: String| {
            Error::new(
                ErrorKind::InvalidUrl,
                format!(
                    "invalid URL `{}`: {}",
                    masked_url(url),
                    masked::discreet(&cause, url)
                ),
            )
        };
        grammar::parse(url.trim()).map_err(wrong)
    }
}
