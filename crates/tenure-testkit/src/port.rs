//! A port that stays reserved while its server is down.
//!
//! Otherwise the next process that asks for a free port could get that of a killed server, and a client
//! with the old address would talk to a server of another test.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt,
};

/// The cluster bus of a server listens on its port plus 10000, which must be valid too.
const PORT_MAX: u16 = 55_535;

/// A port on the loopback address, reserved until this is dropped. A server can listen on it at any
/// time; no other process gets it as a free port.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    port: u16,
    /// Bound but not listening.
    _socket: OwnedFd,
}

impl ReservedPort {
    pub(crate) fn new() -> Self {
        loop {
            let reserved = Self::any();
            if reserved.port <= PORT_MAX {
                return reserved;
            }
        }
    }

    pub(crate) fn get(&self) -> u16 {
        self.port
    }

    fn any() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)
            .expect("failed to create a socket");
        // Servers set this too, so they may listen on the same port.
        setsockopt(&socket, sockopt::ReuseAddr, &true).expect("failed to share a port");
        let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        bind(socket.as_raw_fd(), &any).expect("failed to bind a free port");
        let addr: SockaddrIn =
            getsockname(socket.as_raw_fd()).expect("a bound socket has an address");
        Self {
            port: addr.port(),
            _socket: socket,
        }
    }
}
