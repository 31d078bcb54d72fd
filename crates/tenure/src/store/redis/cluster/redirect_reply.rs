//! The replies of a node that does not serve a slot, or not alone.

use super::slot::Slot;
use crate::store::Failure;
use crate::store::redis::server_error::reply_of;
use crate::url::{Address, RedisTarget};

/// Why a node did not run a command. In all these cases, nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Redirect {
    /// Another node has the slot.
    Moved { slot: Slot, to: NodeAddress },
    /// The slot is migrating to another node, and these keys are there already.
    Ask { to: NodeAddress },
    /// The slot is migrating to another node, and some of these keys are there already.
    TryAgain,
    /// The cluster does not serve the slot at all.
    Down,
    /// The node is a replica.
    ReadOnly,
}

/// The address of another node, as a node reports it. Without a host: the same host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct NodeAddress {
    host: Option<String>,
    port: u16,
}

impl Redirect {
    /// The redirect in a failure, if there is one.
    pub(super) fn of(failure: &Failure) -> Option<Self> {
        if failure.in_flight.is_some() {
            return None;
        }
        Self::read(&reply_of(failure)?)
    }

    pub(in crate::store::redis) fn read(reply: &str) -> Option<Self> {
        let mut words = reply.split_ascii_whitespace();
        match words.next()? {
            "MOVED" => Some(Self::Moved {
                slot: Slot::numbered(words.next()?.parse().ok()?)?,
                to: NodeAddress::read(words.next()?)?,
            }),
            "ASK" => Some(Self::Ask {
                to: NodeAddress::read(words.nth(1)?)?,
            }),
            "TRYAGAIN" => Some(Self::TryAgain),
            "CLUSTERDOWN" => Some(Self::Down),
            "READONLY" => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

impl NodeAddress {
    /// A node without a host, or with an unknown one, is on the host of the node that was asked.
    pub(super) fn new(host: Option<&str>, port: u16) -> Self {
        let host = host.filter(|host| !host.is_empty() && *host != "?");
        Self {
            host: host.map(ToOwned::to_owned),
            port,
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::new(Some(host), port.parse().ok()?))
    }

    /// The target at this address, otherwise the same as `asked`.
    pub(super) fn relative_to(&self, asked: &RedisTarget) -> RedisTarget {
        let (own, port) = (self.host.clone(), self.port);
        let address = match &asked.address {
            Address::Tcp { host, .. } => Address::Tcp {
                host: own.unwrap_or_else(|| host.clone()),
                port,
            },
            Address::Tls { host, tls, .. } => Address::Tls {
                host: own.unwrap_or_else(|| host.clone()),
                port,
                tls: tls.clone(),
            },
            Address::Unix(_) => Address::Tcp {
                host: own.unwrap_or_else(|| "127.0.0.1".to_owned()),
                port,
            },
        };
        RedisTarget {
            address,
            ..asked.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_of(host: Option<&str>) -> NodeAddress {
        NodeAddress::new(host, 6381)
    }

    #[test]
    fn redirects_are_read_with_every_kind_of_host() {
        let slot = Slot::numbered(3999).unwrap();
        for (text, to) in [
            ("MOVED 3999 127.0.0.1:6381", address_of(Some("127.0.0.1"))),
            (
                "MOVED 3999 redis-2.local:6381",
                address_of(Some("redis-2.local")),
            ),
            ("MOVED 3999 ::1:6381", address_of(Some("::1"))),
            ("MOVED 3999 :6381", address_of(None)),
            ("MOVED 3999 ?:6381", address_of(None)),
        ] {
            let moved = Redirect::Moved { slot, to };
            assert_eq!(Redirect::read(text), Some(moved), "{text}");
        }
        let to = address_of(Some("h"));
        assert_eq!(Redirect::read("ASK 1 h:6381"), Some(Redirect::Ask { to }));
        for no in [
            "",
            "ERR no",
            "MOVED",
            "MOVED 16384 h:1",
            "MOVED 1 h",
            "MOVED x h:1",
        ] {
            assert_eq!(Redirect::read(no), None, "{no}");
        }
    }

    #[test]
    fn an_address_without_a_host_means_the_same_host() {
        let crate::url::Target::Redis(asked) = crate::url::Target::parse("redis://a:1").unwrap()
        else {
            panic!("not a server");
        };
        let at = |host| address_of(host).relative_to(&asked).to_string();
        assert_eq!(at(None), "redis://a:6381/");
        assert_eq!(at(Some("b")), "redis://b:6381/");
    }
}
