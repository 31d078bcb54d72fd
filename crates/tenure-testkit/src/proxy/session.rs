//! The session state of a client, which must be replayed to a server that replaces another.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::frames::{Frames, words};

/// The state of one connection that matters for another server.
#[derive(Debug, Default)]
pub(super) struct Session {
    frames: Frames,
    /// The commands that set identity and protocol, in order.
    handshake: Vec<Vec<u8>>,
    in_transaction: bool,
    has_subscription: bool,
}

impl Session {
    /// Records bytes that go to the server; returns how many commands they complete.
    pub(super) fn record(&mut self, bytes: &[u8]) -> usize {
        let mut commands = 0;
        let (handshake, in_transaction) = (&mut self.handshake, &mut self.in_transaction);
        let has_subscription = &mut self.has_subscription;
        self.frames.feed(bytes, |command| {
            commands += 1;
            let words = words(command);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["AUTH" | "HELLO" | "SELECT" | "READONLY", ..]
                | ["CLIENT", "SETNAME" | "SETINFO"] => handshake.push(command.to_vec()),
                ["MULTI", ..] => *in_transaction = true,
                ["EXEC" | "DISCARD", ..] => *in_transaction = false,
                ["SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE", ..] | ["CLIENT", "TRACKING"] => {
                    *has_subscription = true;
                }
                _ => {}
            }
        });
        commands
    }

    /// Whether no command was sent partially and no transaction is open.
    pub(super) fn is_between_commands(&self) -> bool {
        self.frames.is_between() && !self.in_transaction
    }

    /// Whether the server may push messages to the client.
    pub(super) fn has_subscription(&self) -> bool {
        self.has_subscription
    }

    /// Replays the handshake to another server and reads the replies.
    pub(super) fn replay_handshake(&self, server: &TcpStream) -> io::Result<()> {
        let mut stream = server;
        stream.write_all(&self.handshake.concat())?;
        let (mut frames, mut answers) = (Frames::default(), 0);
        let mut buffer = [0; 4096];
        while answers < self.handshake.len() {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            frames.feed(&buffer[..count], |_| answers += 1);
        }
        Ok(())
    }
}
