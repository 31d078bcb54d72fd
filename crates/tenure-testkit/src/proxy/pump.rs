//! Forwards one direction of one connection and applies the current faults.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::frames::{Frames, is_reply};
use super::modes::Flow;
use super::{Direction, Shared};
use crate::mutex::lock;

/// How often held data is rechecked.
const TICK: Duration = Duration::from_millis(2);
/// Large, so that a reply is rarely split and rewriting finds it in one chunk.
const BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct Pump {
    connection: Arc<Connection>,
    shared: Arc<Shared>,
    direction: Direction,
    /// Received and not yet delivered.
    held: VecDeque<Parcel>,
    /// When the next byte may be sent while dribbling.
    next_byte: Instant,
    /// Bytes until the connection is cut, if requested.
    cut_left: Option<usize>,
    /// The socket's current timeout.
    read_limit: Option<Duration>,
    source_ended: bool,
    has_received: bool,
    /// Counts replies on movable connections.
    replies: Frames,
    /// How often the connection had been moved when the last read began.
    moves: u64,
}

struct Parcel {
    bytes: Vec<u8>,
    sent: usize,
    arrived: Instant,
    /// Whether it is the first on this connection.
    is_first: bool,
}

/// The next step for the held parcels.
enum Next {
    /// Nothing is held.
    Idle,
    /// Deliver this many bytes of the first parcel now.
    Deliver(usize),
    /// Check again after this long.
    Wait(Duration),
}

impl Pump {
    pub(super) fn new(
        connection: &Arc<Connection>,
        shared: &Arc<Shared>,
        direction: Direction,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            shared: Arc::clone(shared),
            direction,
            held: VecDeque::new(),
            next_byte: Instant::now(),
            cut_left: None,
            read_limit: None,
            source_ended: false,
            has_received: false,
            replies: Frames::default(),
            moves: 0,
        }
    }

    pub(super) fn run(mut self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while !self.connection.is_ending() {
            match self.next() {
                Next::Deliver(count) => self.deliver(count),
                Next::Wait(time) => self.receive(&mut buffer, Some(time)),
                Next::Idle if self.cut_left == Some(0) => self.connection.reset(),
                Next::Idle if self.source_ended => return self.connection.finish(self.direction),
                Next::Idle => self.receive(&mut buffer, None),
            }
        }
    }

    fn next(&self) -> Next {
        let Some(parcel) = self.held.front() else {
            return self.next_without_parcels();
        };
        let flow = self.flow();
        if flow.held {
            return Next::Wait(TICK);
        }
        let delay = if flow.delay_spares_first && parcel.is_first {
            Duration::ZERO
        } else {
            flow.delay
        };
        let due = self.next_byte.max(parcel.arrived + delay);
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            Next::Wait(left)
        } else if flow.dribble.is_zero() {
            Next::Deliver(parcel.bytes.len() - parcel.sent)
        } else {
            Next::Deliver(1)
        }
    }

    /// The end of a stream is held or dropped like data.
    fn next_without_parcels(&self) -> Next {
        if !self.source_ended {
            return Next::Idle;
        }
        let flow = self.flow();
        if flow.dropped {
            self.connection.set_lost_bytes();
        }
        if flow.held || flow.dropped {
            Next::Wait(TICK)
        } else {
            Next::Idle
        }
    }

    fn deliver(&mut self, count: usize) {
        let Some(parcel) = self.held.front_mut() else {
            return;
        };
        let bytes = &parcel.bytes[parcel.sent..][..count];
        if self.connection.write(self.direction, bytes).is_err() {
            self.connection.end();
        }
        parcel.sent += count;
        if parcel.sent == parcel.bytes.len() {
            self.held.pop_front();
        }
        let dribble = self.flow().dribble;
        if !dribble.is_zero() {
            self.next_byte = Instant::now() + dribble;
        }
    }

    /// Waits for more bytes, at most for `limit`.
    fn receive(&mut self, buffer: &mut [u8], limit: Option<Duration>) {
        let limit = limit.map(|limit| limit.min(TICK));
        if let Some(limit) = limit {
            // Socket timeouts have the kernel's coarse resolution, so sleep for short waits.
            if self.source_ended || limit < TICK {
                return thread::sleep(limit);
            }
        }
        match self.read(buffer, limit) {
            Ok(None) => {}
            // The old server's connection ended; read from the new one from now on.
            Ok(Some(0)) | Err(_) if self.was_moved() => {}
            Ok(Some(0)) | Err(_) => self.source_ended = true,
            Ok(Some(count)) => self.take(&mut buffer[..count]),
        }
    }

    /// Whether the server was replaced since the last read began.
    fn was_moved(&self) -> bool {
        self.direction == Direction::Replies && self.connection.moves() > self.moves
    }

    fn read(&mut self, buffer: &mut [u8], limit: Option<Duration>) -> io::Result<Option<usize>> {
        if self.was_moved() {
            self.moves = self.connection.moves();
            self.read_limit = None;
        }
        // Saves a system call per chunk when the proxy has no faults.
        if self.read_limit != limit {
            self.connection.set_read_limit(self.direction, limit)?;
            self.read_limit = limit;
        }
        self.connection.read(self.direction, buffer)
    }

    fn take(&mut self, mut chunk: &mut [u8]) {
        self.count_replies(chunk);
        let is_dropped = self.is_dropped(chunk);
        // Afterwards: who sees the count may end the fault, and that must not change what becomes of
        // this chunk.
        self.shared.count(self.direction, chunk.len());
        if is_dropped {
            return;
        }
        if let Some(left) = &mut self.cut_left {
            let count = chunk.len().min(*left);
            *left -= count;
            chunk = &mut chunk[..count];
        }
        if chunk.is_empty() {
            return;
        }
        self.held.push_back(Parcel {
            bytes: chunk.to_vec(),
            sent: 0,
            arrived: Instant::now(),
            is_first: !self.has_received,
        });
        self.has_received = true;
    }

    fn count_replies(&mut self, chunk: &[u8]) {
        if self.direction == Direction::Replies && self.connection.is_movable() {
            let mut count = 0;
            self.replies
                .feed(chunk, |value| count += i64::from(is_reply(value)));
            self.connection.note_replies(count);
        }
    }

    /// Applies the faults that are decided once per chunk. Returns whether the chunk is dropped.
    fn is_dropped(&mut self, chunk: &mut [u8]) -> bool {
        let mut modes = lock(&self.shared.modes);
        match self.direction {
            Direction::Requests => {
                if modes.take_reset(chunk) {
                    self.connection.set_reset_at_reply();
                }
                self.cut_left = self.cut_left.or_else(|| modes.cut_after.take());
            }
            Direction::Replies => {
                if self.connection.resets_at_reply() {
                    self.connection.reset();
                    return true;
                }
                modes.rewrite(chunk);
            }
        }
        if modes.flow(self.direction).dropped {
            self.connection.set_lost_bytes();
            return true;
        }
        // The fault has ended, and this connection is about to be reset: the reply to a request that
        // passed now would be taken for the reply to a dropped one.
        if self.connection.lost_bytes() && !modes.is_dropping() {
            self.connection.reset();
            return true;
        }
        false
    }

    fn flow(&self) -> Flow {
        let mut flow = self.shared.flow(self.direction);
        let held = self.connection.is_stranded() || self.connection.is_draining();
        flow.held |= self.direction == Direction::Requests && held;
        flow
    }
}
