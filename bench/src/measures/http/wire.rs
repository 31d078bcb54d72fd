//! HTTP/1.1 as far as it is needed: requests as bytes, answers by their length. What the client costs
//! is taken from the same two cores as what the service costs, so there should be little of it.

use std::net::SocketAddr;
use std::str::FromStr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LENGTH: &[u8] = b"content-length:";

/// A connection that is kept.
pub struct Wire {
    socket: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// A request as bytes.
pub fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

impl Wire {
    pub async fn open(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).await.expect("it listens");
        socket.set_nodelay(true).expect("a socket");
        Self {
            socket,
            buffer: vec![0; 4_096],
            filled: 0,
        }
    }

    pub async fn ask(&mut self, request: &[u8]) -> Answer {
        self.send(request).await;
        let (head, status, length) = loop {
            if let Some(head) = self.head() {
                break head;
            }
            self.fill().await;
        };
        while self.filled < head + length {
            self.fill().await;
        }
        let body = String::from_utf8_lossy(&self.buffer[head..head + length]).into_owned();
        self.buffer.copy_within(head + length..self.filled, 0);
        self.filled -= head + length;
        Answer { status, body }
    }

    pub async fn send(&mut self, request: &[u8]) {
        let sent = self.socket.write_all(request).await;
        sent.expect("it reads");
    }

    /// Reads on until `wanted` was seen, and forgets everything up to there. For streams.
    pub async fn read_until(&mut self, wanted: &[u8]) {
        loop {
            let seen = &self.buffer[..self.filled];
            if let Some(place) = find(seen, wanted) {
                let end = place + wanted.len();
                self.buffer.copy_within(end..self.filled, 0);
                self.filled -= end;
                return;
            }
            // Only what may be a beginning of it is kept.
            let keep = self.filled.min(wanted.len() - 1);
            self.buffer.copy_within(self.filled - keep..self.filled, 0);
            self.filled = keep;
            self.fill().await;
        }
    }

    /// Where the head ends, its status, and the length of the body.
    fn head(&self) -> Option<(usize, u16, usize)> {
        let seen = &self.buffer[..self.filled];
        let (mut line, mut length) = (0, 0);
        loop {
            let end = line + memchr::memchr(b'\n', &seen[line..])?;
            match &seen[line..end] {
                b"\r" => return Some((end + 1, number(seen.get(9..12)?), length)),
                [b'c' | b'C', ..] => {
                    let (name, value) = seen[line..end].split_at(LENGTH.len().min(end - line));
                    if name.eq_ignore_ascii_case(LENGTH) {
                        length = number(value);
                    }
                }
                _ => {}
            }
            line = end + 1;
        }
    }

    async fn fill(&mut self) {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 2, 0);
        }
        let read = self.socket.read(&mut self.buffer[self.filled..]).await;
        let read = read.expect("it answers");
        assert!(read > 0, "it closed the connection");
        self.filled += read;
    }
}

fn number<T: FromStr>(text: &[u8]) -> T {
    let text = str::from_utf8(text).unwrap_or_default().trim();
    let Ok(number) = text.parse() else {
        panic!("`{text}` is no number");
    };
    number
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}
