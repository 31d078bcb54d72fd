//! Faults of a running server.

use std::fs;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{RedisServer, StartFailure, launch};
use crate::{Reply, spawn};

/// Counts and returns 1. It cannot use a clock: `TIME` does not advance inside a script on some
/// versions, and `os.clock` does not exist on others.
const SPIN: &str = "for _ = 1, ARGV[1] do end return 1";
/// Enough for a few milliseconds.
const SPIN_SAMPLE_ROUNDS: u64 = 1_000_000;
/// How an error begins that is about the connection.
const CONNECTION: &str = "connection:";
/// How often a command is sent if its connection is dropped.
const RUN_TRIES: u32 = 3;

/// Which connections [`RedisServer::kill_clients`] ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// Connections that send commands, including the kit's own.
    Normal,
    /// Connections with a subscription.
    Pubsub,
}

/// A script that keeps a server busy; see [`RedisServer::busy_script`].
#[derive(Debug)]
#[must_use = "`wait` returns whether the script finished"]
pub struct BusyScript {
    reply: JoinHandle<Result<Reply, String>>,
}

impl RedisServer {
    /// Stops the process (`SIGSTOP`); returns once it is stopped. The kernel still accepts connections
    /// and buffers what clients send.
    pub fn pause(&self) {
        spawn::stop(&self.process());
    }

    /// Resumes a paused process (`SIGCONT`).
    pub fn resume(&self) {
        spawn::cont(&self.process());
    }

    /// Kills the process (`SIGKILL`), paused or not, and waits until it exits.
    pub fn kill(&self) {
        spawn::kill_and_wait(&mut self.process());
    }

    /// Kills the process if it is running and restarts it on the same port and data: it reloads the
    /// append-only file. Changes by `CONFIG SET` are lost.
    #[track_caller]
    pub fn restart(&self) {
        let mut process = self.process();
        spawn::kill_and_wait(&mut process);
        match launch(&self.setup, &self.files, self.port.get()) {
            Ok(started) => *process = started,
            Err(StartFailure::PortTaken) => {
                self.fail(&format!("another process took port `{}`", self.port.get()))
            }
            Err(StartFailure::Other(error)) => self.fail(&error),
        }
    }

    /// Like [`restart`](Self::restart), but all data is lost.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.kill();
        let data = self.files.data();
        fs::remove_dir_all(&data)
            .and_then(|()| fs::create_dir(&data))
            .expect("failed to delete the server's data");
        self.restart();
    }

    /// Whether the process exists, paused or not.
    pub fn is_running(&self) -> bool {
        matches!(self.process().try_wait(), Ok(None))
    }

    /// Whether the process exists and is not paused.
    pub(crate) fn is_awake(&self) -> bool {
        let mut process = self.process();
        matches!(process.try_wait(), Ok(None)) && !spawn::is_stopped(&process)
    }

    /// Closes all connections of a kind; returns how many.
    #[track_caller]
    pub fn kill_clients(&self, kind: ClientKind) -> u64 {
        let kind = match kind {
            ClientKind::Normal => "normal",
            ClientKind::Pubsub => "pubsub",
        };
        let killed = self.run(&["CLIENT", "KILL", "TYPE", kind]).int();
        killed.try_into().expect("the server counts from zero")
    }

    /// Flushes all scripts, so that the next `EVALSHA` gets `NOSCRIPT`.
    #[track_caller]
    pub fn script_flush(&self) {
        self.run(&["SCRIPT", "FLUSH", "SYNC"]);
    }

    /// Changes a setting until the next restart.
    #[track_caller]
    pub fn set_config(&self, directive: &str, value: &str) {
        self.run(&["CONFIG", "SET", directive, value]);
    }

    /// Limits the memory; `0` lifts the limit.
    #[track_caller]
    pub fn set_maxmemory(&self, bytes: u64) {
        self.set_config("maxmemory", &bytes.to_string());
    }

    /// Makes writes that need memory fail with `OOM`. It does not really fill the memory but sets the
    /// limit below the current use.
    #[track_caller]
    pub fn fill_memory(&self) {
        self.set_config("maxmemory-policy", "noeviction");
        self.set_maxmemory(1);
    }

    /// Undoes [`fill_memory`](Self::fill_memory): no limit.
    #[track_caller]
    pub fn free_memory(&self) {
        self.set_maxmemory(0);
    }

    /// Keeps the server busy with a script for about `millis` milliseconds. Returns as soon as the script
    /// has been sent. Until it ends, clients get no reply, or `BUSY` if `busy-reply-threshold` is shorter.
    /// It takes two `EVAL`s, the first to measure how fast the server counts.
    #[track_caller]
    pub fn busy_script(&self, millis: u64) -> BusyScript {
        let rounds = self.rounds_per_milli() * millis.max(1);
        let mut client = self.client();
        // The machine may be much busier than during the measurement.
        client.set_timeout(Duration::from_millis(millis) * 10 + Duration::from_secs(5));
        if let Err(error) = client.send(&["EVAL", SPIN, "0", &rounds.to_string()]) {
            self.fail(&format!("failed to send the busy script: {error}"));
        }
        BusyScript {
            reply: thread::spawn(move || client.receive()),
        }
    }

    fn rounds_per_milli(&self) -> u64 {
        let start = Instant::now();
        self.run(&["EVAL", SPIN, "0", &SPIN_SAMPLE_ROUNDS.to_string()]);
        let micros = u64::try_from(start.elapsed().as_micros())
            .expect("the sample takes less than centuries");
        (SPIN_SAMPLE_ROUNDS * 1000 / micros.max(1)).max(1)
    }

    /// Runs one command, which may be repeated, on a new connection; panics with the server's log if it
    /// fails. A connection that is dropped is no failure: a sentinel disconnects the clients of a server
    /// that it demotes.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> Reply {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_run(words) {
                Ok(reply) => return reply,
                Err(error) if error.starts_with(CONNECTION) && tries < RUN_TRIES => {}
                Err(error) => self.fail(&format!("`{}`: {error}", words.join(" "))),
            }
        }
    }

    /// Runs one command on a new connection, or returns the error.
    pub(crate) fn try_run(&self, words: &[&str]) -> Result<Reply, String> {
        self.try_client()?.try_command(words)
    }
}

impl BusyScript {
    /// Waits until the script ends. `false` if it or its server was killed.
    pub fn wait(self) -> bool {
        let reply = self
            .reply
            .join()
            .expect("the waiting thread does not panic");
        reply == Ok(Reply::Int(1))
    }
}
