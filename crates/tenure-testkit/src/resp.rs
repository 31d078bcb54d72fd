//! A small independent blocking Redis client, so that the kit does not share the library's mistakes.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a command waits for its reply by default; see [`RespClient::set_timeout`].
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);

/// One blocking connection that speaks RESP2.
#[derive(Debug)]
pub struct RespClient {
    addr: SocketAddr,
    reader: BufReader<TcpStream>,
    timeout: Duration,
    /// Messages that arrived while waiting for a reply.
    messages: VecDeque<Message>,
}

/// A reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value: a null bulk string or a null array.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple string, or a bulk string that is UTF-8.
    Text(String),
    /// A bulk string that is not UTF-8.
    Bytes(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
    /// An error inside an array, or the reply to a pipelined command.
    Error(String),
}

/// A message of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The channel it came from.
    pub channel: String,
    /// What was published.
    pub payload: String,
}

impl RespClient {
    /// Connects; panics if nothing listens at `addr`.
    pub fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr)
            .unwrap_or_else(|error| panic!("failed to connect to `{addr}`: {error}"))
    }

    /// Connects, or returns the error.
    pub fn try_connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, DEFAULT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(DEFAULT_TIMEOUT))?;
        Ok(Self {
            addr,
            reader: BufReader::new(stream),
            timeout: DEFAULT_TIMEOUT,
            messages: VecDeque::new(),
        })
    }

    /// Sets how long later commands wait for their replies.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The local address, as in `CLIENT LIST`.
    pub fn local_addr(&self) -> SocketAddr {
        let addr = self.reader.get_ref().local_addr();
        addr.expect("a connected socket has an address")
    }

    /// Runs a command; panics if the connection fails or the server replies with an error.
    #[track_caller]
    pub fn command(&mut self, words: &[impl AsRef<[u8]>]) -> Reply {
        match self.try_command(words) {
            Ok(reply) => reply,
            Err(error) => panic!("`{}` at `{}`: {error}", typed(words), self.addr),
        }
    }

    /// Runs a command. `Err` is the server's error as it was sent (`OOM command not allowed ..`), or,
    /// beginning with `connection:`, why there was no reply.
    pub fn try_command(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Reply, String> {
        self.send(words)?;
        match self.receive()? {
            Reply::Error(error) => Err(error),
            reply => Ok(reply),
        }
    }

    /// Sends a command without waiting for its reply; [`receive`](Self::receive) returns it.
    pub fn send(&mut self, words: &[impl AsRef<[u8]>]) -> Result<(), String> {
        let stream = self.reader.get_mut();
        stream
            .write_all(&encode(words))
            .map_err(|error| transport(&error))
    }

    /// Waits for the next reply, including errors.
    pub fn receive(&mut self) -> Result<Reply, String> {
        let end = Instant::now() + self.timeout;
        read_reply(&mut self.reader, end).map_err(|error| transport(&error))
    }

    /// Subscribes and returns once the server has confirmed every channel.
    #[track_caller]
    pub fn subscribe(&mut self, channels: &[&str]) {
        self.subscribe_by("SUBSCRIBE", channels);
    }

    /// The same for sharded channels, at the node that has their slot.
    #[track_caller]
    pub fn subscribe_sharded(&mut self, channels: &[&str]) {
        self.subscribe_by("SSUBSCRIBE", channels);
    }

    #[track_caller]
    fn subscribe_by(&mut self, command: &str, channels: &[&str]) {
        let mut words = vec![command];
        words.extend(channels);
        let mut reply = self.command(&words);
        let mut confirmed = 0;
        loop {
            match message_of(&reply) {
                Some(message) => self.messages.push_back(message),
                None => confirmed += 1,
            }
            if confirmed == channels.len() {
                return;
            }
            reply = self
                .receive()
                .unwrap_or_else(|error| panic!("`{command}`: {error}"));
        }
    }

    /// The next message of the subscribed channels, `None` if none came within `limit`.
    /// Panics if the connection is lost.
    #[track_caller]
    pub fn next_message(&mut self, limit: Duration) -> Option<Message> {
        let end = Instant::now() + limit;
        while self.messages.is_empty() {
            match read_reply(&mut self.reader, end) {
                Ok(reply) => self.messages.extend(message_of(&reply)),
                Err(error) if is_timeout(&error) => return None,
                Err(error) => panic!("failed to wait for a message: {error}"),
            }
        }
        self.messages.pop_front()
    }
}

impl Reply {
    /// The text; panics if the reply is something else.
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("expected a text, got `{other:?}`"),
        }
    }

    /// The integer, also when it came as text; panics if the reply is something else.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(int) => *int,
            Self::Text(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("expected an integer, got `{text}`")),
            other => panic!("expected an integer, got `{other:?}`"),
        }
    }

    /// The array's elements; panics if the reply is something else.
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Self::Array(replies) => replies,
            other => panic!("expected an array, got `{other:?}`"),
        }
    }

    /// Whether there was no value.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }
}

fn encode(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn read_reply(reader: &mut BufReader<TcpStream>, end: Instant) -> io::Result<Reply> {
    let line = read_line(reader, end)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| garbage(&line))?;
    match kind {
        "+" => Ok(Reply::Text(rest.into())),
        "-" => Ok(Reply::Error(rest.into())),
        ":" => Ok(Reply::Int(number(rest)?)),
        "$" => read_bulk(reader, number(rest)?, end),
        "*" => match usize::try_from(number(rest)?) {
            Ok(length) => (0..length)
                .map(|_| read_reply(reader, end))
                .collect::<io::Result<_>>()
                .map(Reply::Array),
            Err(_) => Ok(Reply::Nil),
        },
        _ => Err(garbage(&line)),
    }
}

fn read_bulk(reader: &mut BufReader<TcpStream>, length: i64, end: Instant) -> io::Result<Reply> {
    let Ok(length) = usize::try_from(length) else {
        return Ok(Reply::Nil);
    };
    let mut bytes = vec![0; length + 2];
    let mut filled = 0;
    while filled < bytes.len() {
        wait_no_longer_than(reader, end)?;
        match reader.read(&mut bytes[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    bytes.truncate(length);
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Reply::Text(text),
        Err(error) => Reply::Bytes(error.into_bytes()),
    })
}

fn read_line(reader: &mut BufReader<TcpStream>, end: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        wait_no_longer_than(reader, end)?;
        // Not `read_until`: it would drop the bytes read so far when it times out, and a dribbling
        // peer would restart its timeout with each byte.
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let newline = buffer.iter().position(|&byte| byte == b'\n');
        let count = newline.map_or(buffer.len(), |at| at + 1);
        line.extend_from_slice(&buffer[..count]);
        reader.consume(count);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(|error| garbage(&error.to_string()))
}

fn wait_no_longer_than(reader: &BufReader<TcpStream>, end: Instant) -> io::Result<()> {
    if !reader.buffer().is_empty() {
        return Ok(());
    }
    let left = end.saturating_duration_since(Instant::now());
    // Zero would mean no timeout.
    let left = left.max(Duration::from_millis(1));
    reader.get_ref().set_read_timeout(Some(left))
}

/// The message in a push such as `["message", channel, payload]`.
fn message_of(reply: &Reply) -> Option<Message> {
    let Reply::Array(parts) = reply else {
        return None;
    };
    match &parts[..] {
        [Reply::Text(kind), channel, payload] if kind == "message" || kind == "smessage" => {
            Some(Message {
                channel: channel.text().into(),
                payload: payload.text().into(),
            })
        }
        _ => None,
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| garbage(text))
}

fn garbage(line: &str) -> io::Error {
    let text = format!("not a RESP2 reply: `{line}`");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn transport(error: &io::Error) -> String {
    if is_timeout(error) {
        "connection: timed out".into()
    } else {
        format!("connection: {error}")
    }
}

/// The command as typed, for messages.
fn typed(words: &[impl AsRef<[u8]>]) -> String {
    let mut line = String::new();
    for word in words {
        let _ = write!(line, "{} ", String::from_utf8_lossy(word.as_ref()));
    }
    line.trim_end().into()
}
