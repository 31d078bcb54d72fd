//! Commands in bulk over one plain socket: so many per system call that only the commands count.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

/// One connection.
pub struct Pipe {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

/// Commands in RESP, ready to be sent, and how each of their replies begins.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    replies: Vec<&'static str>,
}

impl Batch {
    /// Adds a command. The first line of its reply must begin with `reply`.
    pub fn push(&mut self, words: &[&str], reply: &'static str) {
        self.bytes
            .extend(format!("*{}\r\n", words.len()).into_bytes());
        for word in words {
            let length = word.len();
            self.bytes
                .extend(format!("${length}\r\n{word}\r\n").into_bytes());
        }
        self.replies.push(reply);
    }

    /// Adds a further line of the last reply, by its beginning.
    pub fn expect(&mut self, line: &'static str) {
        self.replies.push(line);
    }
}

impl Pipe {
    pub fn connect(addr: SocketAddr) -> Self {
        let writer = TcpStream::connect(addr).expect("the server listens");
        writer
            .set_nodelay(true)
            .expect("a socket takes its options");
        let reader = writer.try_clone().expect("a socket can be cloned");
        let reader = BufReader::with_capacity(1 << 18, reader);
        Self { reader, writer }
    }

    /// Sends everything and reads every reply, both at once: neither side waits for the other.
    pub fn run(&mut self, batch: &Batch) {
        let Self { reader, writer } = self;
        thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&batch.bytes).expect("the server reads"));
            let mut line = String::new();
            for expected in &batch.replies {
                line.clear();
                reader.read_line(&mut line).expect("the server answers");
                assert!(
                    line.starts_with(expected),
                    "the server answered `{}` instead of `{expected}..`",
                    line.trim_end()
                );
            }
        });
    }
}
