//! A connection as bytes: sends requests and matches the replies to them.
//!
//! Requests of many tasks share one connection. Sending is synchronous: the bytes are appended to
//! one buffer under a lock, so the order of requests is the order of the calls. A lone sender writes
//! them to the socket at once, on its own thread. Otherwise a task writes them, the [`Driver`], which
//! also reads the replies: it first lets other tasks run, so that their requests share the write. A
//! request is sent at most once.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use tokio::sync::{mpsc, oneshot};

#[cfg(unix)]
use self::caller_read::CallerRead;
use self::driver::Driver;
use self::input::Input;
pub(crate) use self::push::Push;
use self::resp::Received;
#[cfg(unix)]
use self::socket::Socket;
pub(super) use self::stream::Stream;
use super::command::{Cmd, Pipeline, cmd};
use super::value::Value;

#[cfg(unix)]
mod caller_read;
mod driver;
mod input;
mod push;
mod resp;
#[cfg(unix)]
mod socket;
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

/// Who reads the reply to a request that is alone on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadBy {
    Driver,
    /// The caller, if the reply comes at once: see [`Wire::read_on_caller`].
    Caller,
}

/// What the senders and the driver share.
struct Shared {
    // A std mutex, not an async one: it is held for one system call at most.
    state: Mutex<State>,
    /// To read and write without the driver, if that is possible.
    #[cfg(unix)]
    socket: Option<Socket>,
    #[cfg(unix)]
    caller_read: CallerRead,
    /// Locked before `state`, and while replies are matched to requests: they must stay in order.
    input: Mutex<Input>,
    /// Where what the server sends unasked goes.
    pushes: Option<mpsc::UnboundedSender<Push>>,
    /// Adds requests that wait outside, just before a write.
    gather: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    /// What is to be written, in the order of `awaited`.
    out: Vec<u8>,
    awaited: VecDeque<Awaited>,
    /// How many requests are in `out`, and how many the last write had.
    unwritten: usize,
    last_write: usize,
    /// How many requests were sent in all.
    sent: u64,
    /// Whether requests wait outside for the next write.
    gathering: bool,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// Whether the driver leaves replies to the callers that wait for them.
    driver_rests: bool,
    /// Whether a caller waits for replies on its own thread, so that the driver must not read them.
    caller_reads: bool,
    closed: Option<WireError>,
}

/// A request without a reply yet.
enum Awaited {
    One(oneshot::Sender<Reply<Value>>),
    Several {
        left: usize,
        replies: Vec<Value>,
        sink: Sink,
    },
    /// The server confirms with a push, or refuses with a reply.
    Confirmation {
        word: &'static str,
        channel: String,
        sender: oneshot::Sender<Reply<Value>>,
    },
}

/// Takes several replies, on the thread that read them.
type Sink = Box<dyn FnOnce(Reply<Vec<Value>>) + Send>;

/// A request that is done, with its reply.
enum Done {
    One(oneshot::Sender<Reply<Value>>, Value),
    Several(Sink, Vec<Value>),
}

impl Wire {
    /// Uses a stream. The current runtime drives it. What the server sends unasked goes to `pushes`.
    pub(super) fn new(stream: Stream, pushes: Option<mpsc::UnboundedSender<Push>>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            #[cfg(unix)]
            socket: stream.socket(),
            #[cfg(unix)]
            caller_read: CallerRead::default(),
            input: Mutex::new(Input::new()),
            pushes,
            gather: OnceLock::new(),
        });
        tokio::spawn(Driver::new(Arc::clone(&shared), stream));
        Self { shared }
    }

    /// Sends one command.
    pub(super) async fn run(&self, command: &Cmd, read_by: ReadBy) -> Reply<Value> {
        let (sender, reply) = oneshot::channel();
        self.shared
            .send(Awaited::One(sender), read_by, |out| command.encode(out));
        if read_by == ReadBy::Caller {
            self.read_on_caller();
        }
        reply.await.unwrap_or(Err(WireError::Closed))
    }

    /// Sends several commands together.
    pub(super) async fn run_all(&self, commands: &Pipeline) -> Reply<Vec<Value>> {
        if commands.len() == 0 {
            return Ok(Vec::new());
        }
        let (sender, replies) = oneshot::channel();
        // The sender may no longer wait.
        let sink = Box::new(|replies| drop(sender.send(replies)));
        self.shared.send(
            Awaited::several(commands.len(), sink),
            ReadBy::Driver,
            |out| {
                commands.encode(out);
            },
        );
        replies.await.unwrap_or(Err(WireError::Closed))
    }

    /// Sets what is called before a write that was [requested](Self::request_write), to add requests
    /// that wait outside, and when the connection ends, to fail them. It is called without locks, and
    /// may send. Later calls change nothing.
    pub(super) fn on_write(&self, gather: impl Fn() + Send + Sync + 'static) {
        self.shared.gather.get_or_init(|| Box::new(gather));
    }

    /// Whether a request is best sent now: it is alone on the connection, or the connection has ended.
    pub(super) fn sends_at_once(&self) -> bool {
        let state = self.shared.state();
        state.is_lone() || state.is_closed()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.state().is_closed()
    }

    /// Has the driver write soon, once other tasks had the chance to add requests.
    pub(super) fn request_write(&self) {
        let mut state = self.shared.state();
        state.gathering = true;
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Sends what `encode` writes of a batch with this many requests and replies. `finish` gets the
    /// batch and its replies, on the thread that reads them. A caller that reads its reply must call
    /// [`read_on_caller`](Self::read_on_caller) next.
    ///
    /// # Errors
    ///
    /// The batch, if the connection has ended: then `finish` is not called.
    pub(super) fn send_batch<B: Send + 'static>(
        &self,
        (requests, replies): (usize, usize),
        (batch, read_by): (B, ReadBy),
        encode: impl FnOnce(&B, &mut Vec<u8>),
        finish: impl FnOnce(B, Reply<Vec<Value>>) + Send + 'static,
    ) -> Result<(), Box<(B, WireError)>> {
        let mut state = self.shared.state();
        if let Some(error) = &state.closed {
            return Err(Box::new((batch, error.clone())));
        }
        let lone = (state.is_lone() && requests == 1).then_some(read_by);
        encode(&batch, &mut state.out);
        let sink = Box::new(move |replies| finish(batch, replies));
        let awaited = Awaited::several(replies, sink);
        self.shared.sent(state, awaited, requests, lone);
        Ok(())
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
        self.shared
            .send(awaited, ReadBy::Driver, |out| command.encode(out));
        reply.await.unwrap_or(Err(WireError::Closed))
    }

    /// Nothing: only the driver reads.
    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as on Unix")]
    pub(super) fn read_on_caller(&self) {}

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
    fn send(&self, awaited: Awaited, read_by: ReadBy, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if let Some(error) = state.closed.clone() {
            drop(state);
            return awaited.fail(&error);
        }
        let lone = state.is_lone().then_some(read_by);
        encode(&mut state.out);
        self.sent(state, awaited, 1, lone);
    }

    /// Notes what awaits the replies to requests that were just appended to `out`, and has them
    /// written: at once if they are alone.
    fn sent(
        &self,
        mut state: MutexGuard<'_, State>,
        awaited: Awaited,
        requests: usize,
        lone: Option<ReadBy>,
    ) {
        state.awaited.push_back(awaited);
        state.unwritten += requests;
        state.sent += 1;
        if lone.is_some() {
            self.write_now(&mut state);
        }
        let needs_driver = !state.out.is_empty() || lone != Some(ReadBy::Caller);
        let driver = if needs_driver && state.driver_rests {
            state.end_rest()
        } else if state.out.is_empty() {
            None
        } else {
            state.driver.take()
        };
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    #[cfg(unix)]
    fn write_now(&self, state: &mut State) {
        if let Some(socket) = &self.socket {
            // An error is left to the driver, which will get it too.
            let written = socket.try_write(&state.out).unwrap_or(0);
            state.out.drain(..written);
            state.note_write();
        }
    }

    #[cfg(not(unix))]
    fn write_now(&self, _: &mut State) {}

    /// Gives the complete replies to their requests.
    fn dispatch(
        &self,
        mut input: MutexGuard<'_, Input>,
        done: &mut Vec<Done>,
    ) -> Result<(), WireError> {
        let (received, invalid) = input.parse();
        let pushes = self.take(received, done);
        drop(input);
        for done in done.drain(..) {
            done.wake();
        }
        for push in pushes? {
            self.push(push);
        }
        invalid
    }

    fn push(&self, push: Push) {
        if let Some(receiver) = &self.pushes {
            // The client may be closing.
            let _ = receiver.send(push);
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
        if let Some(gather) = self.gather.get() {
            gather();
        }
    }

    fn input(&self) -> MutexGuard<'_, Input> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether nothing is under way, and the last write had one request: then no other sender is
    /// likely to come.
    fn is_lone(&self) -> bool {
        self.awaited.is_empty() && self.out.is_empty() && self.last_write <= 1
    }

    fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The driver works again. Returns it, to be woken.
    fn end_rest(&mut self) -> Option<Waker> {
        self.driver_rests = false;
        self.driver.take()
    }

    /// How many requests were answered in all.
    #[cfg(unix)]
    fn answered(&self) -> u64 {
        self.sent - self.awaited.len() as u64
    }

    fn note_write(&mut self) {
        self.last_write = std::mem::take(&mut self.unwritten);
    }

    /// Takes a reply to the oldest request, and returns the request if that was its last one.
    fn answer(&mut self, value: Value) -> Reply<Option<Done>> {
        match self.awaited.pop_front() {
            Some(Awaited::One(sender) | Awaited::Confirmation { sender, .. }) => {
                Ok(Some(Done::One(sender, value)))
            }
            Some(Awaited::Several {
                left,
                mut replies,
                sink,
            }) => {
                replies.push(value);
                if left == 1 {
                    return Ok(Some(Done::Several(sink, replies)));
                }
                self.awaited.push_front(Awaited::Several {
                    left: left - 1,
                    replies,
                    sink,
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
    fn several(count: usize, sink: Sink) -> Self {
        Self::Several {
            left: count,
            replies: Vec::with_capacity(count),
            sink,
        }
    }

    fn fail(self, error: &WireError) {
        // The sender may no longer wait.
        match self {
            Self::One(sender) | Self::Confirmation { sender, .. } => {
                let _ = sender.send(Err(error.clone()));
            }
            Self::Several { sink, .. } => sink(Err(error.clone())),
        }
    }
}

impl Done {
    fn wake(self) {
        // The sender may no longer wait.
        match self {
            Self::One(sender, value) => drop(sender.send(Ok(value))),
            Self::Several(sink, values) => sink(Ok(values)),
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
