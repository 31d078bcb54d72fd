//! A lone caller looks for its reply itself for a moment, before it sleeps.
//!
//! A server on the same machine replies within some microseconds. Most of the time of a request then
//! goes into waking threads: the one that drives the connection, then the caller. So a caller that is
//! alone on the connection reads the reply itself if it comes at once. If that works several times in a
//! row, the driver no longer waits for replies at all, until a caller needs it again. If it does not
//! work, because the server is further away or busy, it is hardly tried any more.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use super::{Shared, Wire};
use crate::moment::Moment;

/// How long a caller looks for its reply: less than it takes to sleep and to be woken.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// At least one request of so many is tried.
const SKIP_MAX: u32 = 1_024;
/// After so many replies in a row that callers read themselves, the driver leaves them to callers.
const ROW: u32 = 16;

/// With one processor, the server could not reply meanwhile.
static HAS_PROCESSORS: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));

/// When to look for a reply, by how it went before. Callers of several threads may use it at once: it
/// decides what is fast, not what is right.
#[derive(Default)]
pub(super) struct Spin {
    /// How many requests to skip before the next try.
    skip: AtomicU32,
    /// How many were skipped after the last try; 0 if that helped.
    skipped: AtomicU32,
    /// How many tries have helped in a row.
    row: AtomicU32,
}

impl Wire {
    /// Waits a moment for replies, on the thread of the caller that sent the only request. The driver
    /// reads those that do not come.
    pub(in crate::store::redis) fn spin(&self) {
        let shared = &self.shared;
        if !shared.spin.is_due() {
            return shared.leave_replies_to_driver();
        }
        if shared.read_soon() {
            if shared.spin.note_helped() {
                shared.leave_replies_to_callers();
            }
        } else {
            shared.spin.note_in_vain();
            shared.leave_replies_to_driver();
        }
    }
}

impl Shared {
    /// Reads replies as they come. Whether all came in time.
    fn read_soon(&self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let end = Moment::now() + SPIN_MAX;
        let mut done = Vec::new();
        loop {
            // If it is locked, the driver is reading. The driver also notices errors and the end of the
            // stream.
            if let Ok(mut input) = self.input.try_lock()
                && input.fill_now(socket).is_ok_and(|read| read > 0)
                && let Err(error) = self.dispatch(input, &mut done)
            {
                self.close(&error);
            }
            // The driver may have read it.
            if self.state().awaited.is_empty() {
                return true;
            }
            if Moment::now() >= end {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn leave_replies_to_callers(&self) {
        let mut state = self.state();
        let driver = if state.callers_read {
            None
        } else {
            state.callers_read = true;
            state.driver.take()
        };
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    fn leave_replies_to_driver(&self) {
        let mut state = self.state();
        let driver = if state.callers_read {
            state.end_callers_read()
        } else {
            None
        };
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }
}

impl Spin {
    fn is_due(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip == 0 && *HAS_PROCESSORS
    }

    /// Whether it has helped often enough.
    fn note_helped(&self) -> bool {
        self.skipped.store(0, Ordering::Relaxed);
        let row = self.row.load(Ordering::Relaxed) + 1;
        self.row.store(row % ROW, Ordering::Relaxed);
        row == ROW
    }

    fn note_in_vain(&self) {
        let skip = 2 * self.skipped.load(Ordering::Relaxed) + 1;
        let skip = skip.min(SKIP_MAX);
        self.skipped.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
        self.row.store(0, Ordering::Relaxed);
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
        wire.shared.leave_replies_to_callers();
        wire
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
        assert!(!wire.shared.state().callers_read);
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
                        wire.shared.leave_replies_to_callers();
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
        let spin = Spin::default();
        let tries = (0..10_000).filter(|_| {
            let is_due = spin.skip.load(Ordering::Relaxed) == 0;
            spin.is_due();
            if is_due {
                spin.note_in_vain();
            }
            is_due
        });
        assert!(tries.count() < 25);
        spin.skip.store(0, Ordering::Relaxed);
        let helped = (0..ROW).filter(|_| spin.note_helped()).count();
        assert_eq!(helped, 1);
    }
}
