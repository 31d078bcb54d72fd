//! What a server knows of a client beyond its data, and so must be told if another takes its place.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::frames::{Frames, words};

/// The requests of one connection so far, as far as they matter for another server.
#[derive(Debug, Default)]
pub(super) struct Session {
    frames: Frames,
    /// Who the client is and how it speaks, in the order it said so.
    greeting: Vec<Vec<u8>>,
    in_transaction: bool,
    listens: bool,
}

impl Session {
    /// Takes note of bytes that go to the server; tells how many commands they complete.
    pub(super) fn note(&mut self, bytes: &[u8]) -> usize {
        let mut commands = 0;
        let (greeting, in_transaction) = (&mut self.greeting, &mut self.in_transaction);
        let listens = &mut self.listens;
        self.frames.feed(bytes, |command| {
            commands += 1;
            let words = words(command);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["AUTH" | "HELLO" | "SELECT" | "READONLY", ..]
                | ["CLIENT", "SETNAME" | "SETINFO"] => greeting.push(command.to_vec()),
                ["MULTI", ..] => *in_transaction = true,
                ["EXEC" | "DISCARD", ..] => *in_transaction = false,
                ["SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE", ..] | ["CLIENT", "TRACKING"] => {
                    *listens = true;
                }
                _ => {}
            }
        });
        commands
    }

    /// Whether no command has been sent in part, and no transaction is open.
    pub(super) fn is_between_commands(&self) -> bool {
        self.frames.is_between() && !self.in_transaction
    }

    /// Whether the server is to tell the client of things by itself.
    pub(super) fn listens(&self) -> bool {
        self.listens
    }

    /// Says to another server what the first one was told at the beginning, and reads its answers.
    pub(super) fn greet(&self, server: &TcpStream) -> io::Result<()> {
        let mut stream = server;
        stream.write_all(&self.greeting.concat())?;
        let (mut frames, mut answers) = (Frames::default(), 0);
        let mut buffer = [0; 4096];
        while answers < self.greeting.len() {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            frames.feed(&buffer[..count], |_| answers += 1);
        }
        Ok(())
    }
}
