use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use tokio::net::TcpSocket;

use super::Service;
use super::locks::SOON;

pub fn address(service: &Service) -> SocketAddr {
    let address = service.url.trim_start_matches("http://");
    address.parse().unwrap()
}

/// A connection from this address of the own machine that has sent a request. If it is not read, no
/// more than so many bytes are taken from the service, if that is given.
pub fn request(service: &Service, path: &str, from: &str, taken_max: Option<u32>) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = taken_max {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let stream = socket.connect(address(service)).await.unwrap();
        stream.into_std().unwrap()
    });
    let mut stream = stream;
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    stream
}
