//! Where the service listens.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel makes before the service takes them, if it allows so many. A sale begins
/// for all buyers at once, and a buyer who finds no room here gets no answer and tries again a second
/// later.
const BACKLOG: u32 = 4_096;

/// Listens with room for many connections that come at once.
///
/// # Errors
///
/// If the address is in use, or not one of this machine's.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Connections of an instance that has just ended do not keep the next from listening.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
