//! A lone caller reads its own reply.
//!
//! A server on the same machine replies within some microseconds. Most of the time of a request then
//! goes into waking threads: the one that drives the connection, then the caller. So a caller that is
//! alone on the connection waits for the reply itself, for a moment, and the driver rests until it is
//! needed again. If the reply does not come in time, because the server is further away or busy, this
//! is hardly tried any more.
//!
//! Replies are in the order of requests, so no other request waits for longer because the first caller
//! reads: its own reply comes first.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use super::{Shared, Wire};
use crate::moment::Moment;

/// How long a caller's thread waits for its reply: about as long as it takes to wake two threads.
const WAIT_MAX: Duration = Duration::from_micros(100);
/// At least one request of so many is tried.
const SKIP_MAX: u32 = 1_024;

/// When a caller should wait for its reply, by how it went before. Callers of several threads may use
/// it at once: it decides what is fast, not what is right.
#[derive(Default)]
pub(super) struct CallerRead {
    /// How many requests to skip before the next try.
    skip: AtomicU32,
    /// How many were skipped after the last try; 0 if that helped.
    skipped: AtomicU32,
}

impl Wire {
    /// Waits a moment for the reply, on the thread of the caller that sent the only request. If it does
    /// not come, the driver reads it.
    pub(in crate::store::redis) fn read_on_caller(&self) {
        let shared = &self.shared;
        if !shared.caller_read.is_due() {
            shared.return_replies_to_driver();
        } else if shared.begin_caller_read() {
            let came = shared.read_own_reply();
            shared.caller_read.note(came);
            shared.end_caller_read(came);
        }
    }
}

impl Shared {
    /// Keeps the driver from reading. False if another caller reads, or if only the driver can.
    fn begin_caller_read(&self) -> bool {
        let mut state = self.state();
        let may_read = self.socket.is_some() && !state.caller_reads && !state.is_closed();
        if may_read {
            (state.caller_reads, state.driver_rests) = (true, true);
        }
        drop(state);
        if !may_read {
            self.return_replies_to_driver();
        }
        may_read
    }

    /// Reads replies until the first of those that are awaited has come. False if it did not come in
    /// time.
    fn read_own_reply(&self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let end = Moment::now() + WAIT_MAX;
        let answered = self.state().answered();
        let mut done = Vec::new();
        loop {
            let left = end.saturating_since(Moment::now());
            if left.is_zero() || !socket.await_readable(left) {
                return false;
            }
            let mut input = self.input();
            match input.fill_now(socket) {
                // The driver also notices errors and the end of the stream.
                Ok(0) => return false,
                Ok(_) => {
                    if let Err(error) = self.dispatch(input, &mut done) {
                        self.close(&error);
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return false,
                Err(_) => {}
            }
            let state = self.state();
            if state.answered() > answered || state.awaited.is_empty() {
                return true;
            }
        }
    }

    /// Lets the driver read again, if there is something to read.
    fn end_caller_read(&self, came: bool) {
        let mut state = self.state();
        state.caller_reads = false;
        let driver = if came && state.awaited.is_empty() && state.driver_rests {
            None
        } else {
            state.end_rest()
        };
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    fn return_replies_to_driver(&self) {
        let mut state = self.state();
        let driver = if state.driver_rests && !state.caller_reads {
            state.end_rest()
        } else {
            None
        };
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }
}

impl CallerRead {
    fn is_due(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip == 0
    }

    fn note(&self, came: bool) {
        let skip = if came {
            0
        } else {
            (2 * self.skipped.load(Ordering::Relaxed) + 1).min(SKIP_MAX)
        };
        self.skipped.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_testkit::{RedisServer, eventually};
    use tokio::net::TcpStream;

    use super::super::{ReadBy, Stream};
    use super::*;
    use crate::store::redis::command::cmd;

    const SOON: Duration = Duration::from_secs(30);

    /// A connection to this server, whose driver leaves replies to callers.
    async fn resting(server: &RedisServer) -> Arc<Wire> {
        let stream = TcpStream::connect(server.addr()).await.unwrap();
        let wire = Arc::new(Wire::new(Stream::tcp(stream).unwrap(), None));
        let ping = wire.run(&cmd("PING"), ReadBy::Driver).await.unwrap();
        assert_eq!(ping.as_str(), Some("PONG"));
        rest(&wire);
        wire
    }

    /// Has the driver rest, as a caller does that reads its own reply.
    fn rest(wire: &Wire) {
        let driver = {
            let mut state = wire.shared.state();
            state.driver_rests = true;
            state.driver.take()
        };
        driver.into_iter().for_each(Waker::wake);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_driver_reads_a_reply_that_comes_late() {
        let server = RedisServer::start();
        let wire = resting(&server).await;
        let blocked = Arc::clone(&wire);
        let mut pop = cmd("BLPOP");
        pop.arg("late").arg(0);
        let popped = tokio::spawn(async move { blocked.run(&pop, ReadBy::Caller).await });
        let mut redis = server.client();
        let is_blocked = || {
            let clients = redis.command(&["INFO", "clients"]);
            clients.text().contains("blocked_clients:1")
        };
        assert!(tokio::task::block_in_place(|| eventually(SOON, is_blocked)));
        server.client().command(&["RPUSH", "late", "value"]);
        let popped = tokio::time::timeout(SOON, popped).await.unwrap();
        assert_eq!(popped.unwrap().unwrap().as_array().unwrap().len(), 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_driver_reads_for_those_who_do_not() {
        let server = RedisServer::start();
        let wire = resting(&server).await;
        let ping = cmd("PING");
        let reply = tokio::time::timeout(SOON, wire.run(&ping, ReadBy::Driver));
        assert_eq!(reply.await.unwrap().unwrap().as_str(), Some("PONG"));
        assert!(!wire.shared.state().driver_rests);
    }

    /// A driver that was about to read when the caller began may still do so, once.
    #[tokio::test(flavor = "multi_thread")]
    async fn while_a_caller_reads_the_driver_only_writes() {
        let server = RedisServer::start();
        let wire = resting(&server).await;
        for number in 1..=10 {
            if leaves_reply(&wire, &server, number).await {
                return;
            }
        }
        panic!("the driver reads each time");
    }

    /// Whether the driver writes a request while a caller reads, and leaves the reply to it.
    async fn leaves_reply(wire: &Arc<Wire>, server: &RedisServer, number: i64) -> bool {
        assert!(wire.shared.begin_caller_read());
        assert!(!wire.shared.begin_caller_read(), "two would take turns");
        let other = Arc::clone(wire);
        let mut count = cmd("INCR");
        count.arg("count");
        let counted = tokio::spawn(async move { other.run(&count, ReadBy::Driver).await });
        let mut redis = server.client();
        redis.command(&["SETNX", "count", "0"]); // so that there is a text to read
        let is_counted = || redis.command(&["GET", "count"]).text() == number.to_string();
        assert!(tokio::task::block_in_place(|| eventually(SOON, is_counted)));
        // Time for a driver that reads.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let is_left = !counted.is_finished();
        // The caller's own reply has come, but not that of the other.
        wire.shared.end_caller_read(true);
        let counted = tokio::time::timeout(SOON, counted).await.unwrap();
        assert_eq!(counted.unwrap().unwrap().as_int(), Some(number));
        is_left
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_hangs_up_is_noticed_while_nobody_asks() {
        let server = RedisServer::start();
        let wire = resting(&server).await;
        let mut redis = server.client();
        redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let is_closed = || wire.shared.state().is_closed();
        assert!(tokio::task::block_in_place(|| eventually(SOON, is_closed)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn everybody_gets_their_own_reply_whoever_reads() {
        let server = RedisServer::start();
        let wire = resting(&server).await;
        let callers = (0..3).map(|caller| {
            let wire = Arc::clone(&wire);
            tokio::spawn(async move {
                for number in 0..1_000 {
                    let said = format!("{caller}:{number}");
                    let read_by = [ReadBy::Caller, ReadBy::Driver][usize::from(number % 50 == 0)];
                    let reply = wire.run(cmd("ECHO").arg(&said), read_by).await.unwrap();
                    assert_eq!(reply.as_str(), Some(&*said));
                    if number % 100 < caller * 10 {
                        // So that the others are alone at times.
                        tokio::task::yield_now().await;
                    }
                    if number % 20 == 0 {
                        rest(&wire);
                    }
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            tokio::time::timeout(SOON, caller).await.unwrap().unwrap();
        }
    }

    #[test]
    fn what_does_not_help_is_hardly_tried() {
        let caller_read = CallerRead::default();
        let tries = (0..10_000).filter(|_| {
            let is_due = caller_read.is_due();
            if is_due {
                caller_read.note(false);
            }
            is_due
        });
        assert!(tries.count() < 25);
        caller_read.note(true);
        assert!(caller_read.is_due());
    }
}
