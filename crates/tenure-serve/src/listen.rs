//! Where the service listens.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel accepts in advance, if it allows so many. A sale starts for all
/// buyers at once, and a buyer whose connection does not fit gets no answer and retries a second
/// later.
const BACKLOG: u32 = 4_096;

/// Listens with room for many simultaneous connections.
///
/// # Errors
///
/// If the address is in use or does not belong to this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Old connections of an instance that has just stopped must not block the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
