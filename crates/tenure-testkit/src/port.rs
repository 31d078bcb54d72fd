//! A port that stays reserved while its server is down.
//!
//! Otherwise the next process that asks for a free port could get that of a killed server, and a client
//! with the old address would talk to a server of another test.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt,
};

/// The cluster bus of a server listens on its port plus this.
const BUS: u16 = 10_000;

/// A port on the loopback address, reserved until this is dropped, and the one of its cluster bus. A
/// server can listen on them at any time; no other process gets one of them as a free port, nor for a
/// connection of its own.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    port: u16,
    /// Bound but not listening.
    _sockets: [OwnedFd; 2],
}

impl ReservedPort {
    pub(crate) fn new() -> Self {
        loop {
            let (port, socket) = bound(0).expect("failed to bind a free port");
            let bus = port.checked_add(BUS).and_then(|bus| bound(bus).ok());
            if let Some((_, bus)) = bus {
                return Self {
                    port,
                    _sockets: [socket, bus],
                };
            }
        }
    }

    pub(crate) fn get(&self) -> u16 {
        self.port
    }
}

/// A socket that is bound to this port, or to any that is free.
fn bound(port: u16) -> Result<(u16, OwnedFd), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    // Servers set this too, so they may listen on the same port.
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let addr = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    bind(socket.as_raw_fd(), &addr)?;
    let addr: SockaddrIn = getsockname(socket.as_raw_fd())?;
    Ok((addr.port(), socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a server does it, which shares the port with whom it reserves.
    fn can_listen(port: u16) -> bool {
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
    }

    #[test]
    fn the_port_of_the_cluster_bus_is_reserved_too() {
        let reserved = ReservedPort::new();
        for port in [reserved.get(), reserved.get() + BUS] {
            // Not shared with a socket that insists on being alone.
            let alone = socket(
                AddressFamily::Inet,
                SockType::Stream,
                SockFlag::SOCK_CLOEXEC,
                None,
            );
            let alone = alone.unwrap();
            let addr = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
            assert_eq!(
                bind(alone.as_raw_fd(), &addr),
                Err(Errno::EADDRINUSE),
                "{port}"
            );
            assert!(can_listen(port), "a server cannot listen on {port}");
        }
    }
}
