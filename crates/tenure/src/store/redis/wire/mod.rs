//! A connection as bytes: sends requests and matches the replies to them.
//!
//! Requests of many tasks share one connection. Sending is synchronous: the bytes are appended to
//! one buffer under a lock, so the order of requests is the order of the calls. If nothing else is
//! under way, the sender's own thread writes them to the socket at once. Otherwise a task writes
//! them, the [`Driver`], which also reads the replies. A request is sent at most once.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::{mpsc, oneshot};

use self::driver::Driver;
pub(crate) use self::push::Push;
use self::resp::Received;
pub(super) use self::stream::Stream;
use self::stream::Writer;
use super::command::{Cmd, Pipeline, cmd};
use super::value::Value;

mod driver;
mod push;
mod resp;
mod stream;

/// An open connection. Closed when it is dropped.
pub(super) struct Wire {
    shared: Arc<Shared>,
}

/// Why a connection ended.
#[derive(Clone, Debug)]
pub(super) enum WireError {
    Io(Arc<io::Error>),
    /// The server sent something else than the Redis protocol.
    Protocol(String),
    /// We closed it, or its runtime was shut down.
    Closed,
}

/// The reply to a request.
pub(super) type Reply<T> = Result<T, WireError>;

/// What the senders and the driver share.
struct Shared {
    // A std mutex, not an async one: it is held for one system call at most.
    state: Mutex<State>,
    /// To write without the driver, if the connection has no TLS.
    writer: Option<Writer>,
}

#[derive(Default)]
struct State {
    /// What is to be written, in the order of `awaited`.
    out: Vec<u8>,
    awaited: VecDeque<Awaited>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    closed: Option<WireError>,
}

/// A request without a reply yet.
enum Awaited {
    One(oneshot::Sender<Reply<Value>>),
    Several {
        left: usize,
        replies: Vec<Value>,
        sender: oneshot::Sender<Reply<Vec<Value>>>,
    },
    /// The server confirms with a push, or refuses with a reply.
    Confirmation {
        word: &'static str,
        channel: String,
        sender: oneshot::Sender<Reply<Value>>,
    },
}

/// A request that is done, with its reply.
enum Done {
    One(oneshot::Sender<Reply<Value>>, Value),
    Several(oneshot::Sender<Reply<Vec<Value>>>, Vec<Value>),
}

impl Wire {
    /// Uses a stream. The current runtime drives it. What the server sends unasked goes to `pushes`.
    pub(super) fn new(stream: Stream, pushes: Option<mpsc::UnboundedSender<Push>>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            writer: stream.writer(),
        });
        tokio::spawn(Driver::new(Arc::clone(&shared), stream, pushes));
        Self { shared }
    }

    /// Sends one command.
    pub(super) async fn run(&self, command: &Cmd) -> Reply<Value> {
        let (sender, reply) = oneshot::channel();
        self.shared
            .send(Awaited::One(sender), |out| command.encode(out));
        reply.await.unwrap_or(Err(WireError::Closed))
    }

    /// Sends several commands together.
    pub(super) async fn run_all(&self, commands: &Pipeline) -> Reply<Vec<Value>> {
        let (sender, replies) = oneshot::channel();
        let awaited = Awaited::Several {
            left: commands.len(),
            replies: Vec::with_capacity(commands.len()),
            sender,
        };
        if commands.len() == 0 {
            return Ok(Vec::new());
        }
        self.shared.send(awaited, |out| commands.encode(out));
        replies.await.unwrap_or(Err(WireError::Closed))
    }

    /// Sends a command about a subscription, such as `SUBSCRIBE`, and waits for its confirmation.
    pub(super) async fn confirm(&self, word: &'static str, channel: &str) -> Reply<Value> {
        let (sender, reply) = oneshot::channel();
        let awaited = Awaited::Confirmation {
            word,
            channel: channel.to_owned(),
            sender,
        };
        let mut command = cmd(word);
        command.arg(channel);
        self.shared.send(awaited, |out| command.encode(out));
        reply.await.unwrap_or(Err(WireError::Closed))
    }

    /// Ends it. Pending requests fail at once, on this thread.
    pub(super) fn close(&self) {
        self.shared.close(&WireError::Closed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn send(&self, awaited: Awaited, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if let Some(error) = state.closed.clone() {
            drop(state);
            return awaited.fail(&error);
        }
        let is_idle = state.awaited.is_empty() && state.out.is_empty();
        encode(&mut state.out);
        state.awaited.push_back(awaited);
        if is_idle && let Some(writer) = &self.writer {
            // An error is left to the driver, which will get it too.
            let written = writer.try_write(&state.out).unwrap_or(0);
            state.out.drain(..written);
        }
        if !state.out.is_empty() {
            let driver = state.driver.take();
            drop(state);
            driver.into_iter().for_each(Waker::wake);
        }
    }

    /// Matches what was received to the requests. Returns those that are done, and what was not a
    /// reply.
    ///
    /// # Errors
    ///
    /// If a reply belongs to no request.
    fn take(&self, received: Vec<Received>, done: &mut Vec<Done>) -> Reply<Vec<Push>> {
        let mut pushes = Vec::new();
        let mut state = self.state();
        for received in received {
            match received {
                Received::Reply(value) => done.extend(state.answer(value)?),
                Received::Push(data) => match state.confirm(&data) {
                    Some(confirmed) => {
                        done.push(confirmed);
                        pushes.push(Push::Confirmed);
                    }
                    None => pushes.extend(Push::parse(data)),
                },
            }
        }
        Ok(pushes)
    }

    fn close(&self, error: &WireError) {
        let (awaited, driver) = {
            let mut state = self.state();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(error.clone());
            state.out = Vec::new();
            (std::mem::take(&mut state.awaited), state.driver.take())
        };
        for request in awaited {
            request.fail(error);
        }
        driver.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a reply to the oldest request, and returns the request if that was its last one.
    fn answer(&mut self, value: Value) -> Reply<Option<Done>> {
        match self.awaited.pop_front() {
            Some(Awaited::One(sender) | Awaited::Confirmation { sender, .. }) => {
                Ok(Some(Done::One(sender, value)))
            }
            Some(Awaited::Several {
                left,
                mut replies,
                sender,
            }) => {
                replies.push(value);
                if left == 1 {
                    return Ok(Some(Done::Several(sender, replies)));
                }
                self.awaited.push_front(Awaited::Several {
                    left: left - 1,
                    replies,
                    sender,
                });
                Ok(None)
            }
            None => Err(unrequested()),
        }
    }

    /// Whether this push confirms the oldest request.
    fn confirm(&mut self, data: &[Value]) -> Option<Done> {
        let Some(Awaited::Confirmation { word, channel, .. }) = self.awaited.front() else {
            return None;
        };
        let [kind, about, ..] = data else { return None };
        let same_word = kind
            .as_str()
            .is_some_and(|kind| kind.eq_ignore_ascii_case(word));
        if !same_word || about.as_str() != Some(channel) {
            return None;
        }
        match self.awaited.pop_front() {
            Some(Awaited::Confirmation { sender, .. }) => Some(Done::One(sender, Value::Nil)),
            _ => None,
        }
    }
}

impl Awaited {
    fn fail(self, error: &WireError) {
        // The sender may no longer wait.
        match self {
            Self::One(sender) | Self::Confirmation { sender, .. } => {
                let _ = sender.send(Err(error.clone()));
            }
            Self::Several { sender, .. } => {
                let _ = sender.send(Err(error.clone()));
            }
        }
    }
}

impl Done {
    fn wake(self) {
        // The sender may no longer wait.
        match self {
            Self::One(sender, value) => drop(sender.send(Ok(value))),
            Self::Several(sender, values) => drop(sender.send(Ok(values))),
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Protocol(what) => f.write_str(what),
            Self::Closed => f.write_str("the connection was closed"),
        }
    }
}

fn unrequested() -> WireError {
    WireError::Protocol("a reply without a request".to_owned())
}
