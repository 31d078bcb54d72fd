//! Records the faults that a test injects.

use std::fmt;
use std::path::Path;

use super::line::{Fields, Line, Log, Millis, Writer};
use super::now_ns;

pub(crate) const EXTENSION: &str = "faults";

/// An injected fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What was done, such as `pause-server`; the checkers know two kinds.
    pub kind: String,
    /// The affected client process, if it was one.
    pub client: Option<u64>,
    /// Just before it began.
    pub start_ns: u64,
    /// Just after it ended; for a kill, after the process was gone.
    pub end_ns: u64,
    /// Whether a client could have noticed it; a fault while all clients are idle proves nothing.
    pub took_effect: bool,
}

/// The log of faults.
#[derive(Debug)]
pub struct Nemesis {
    log: Log,
}

/// A fault in progress; [`end`](Self::end) or dropping it records it.
#[derive(Debug)]
#[must_use = "the fault lasts until this ends"]
pub struct ActiveFault<'a> {
    nemesis: &'a Nemesis,
    fault: Fault,
}

impl Fault {
    /// The kind for a `SIGKILL` to a client.
    pub const KILL_CLIENT: &'static str = "kill-client";
    /// The kind for a client that is stopped by `SIGSTOP` until `SIGCONT`.
    pub const PAUSE_CLIENT: &'static str = "pause-client";
}

impl Nemesis {
    /// Creates a log in `dir`; panics if there is one already.
    #[track_caller]
    pub fn create(dir: &Path) -> Self {
        Self {
            log: Log::create(&dir.join(format!("nemesis.{EXTENSION}"))),
        }
    }

    /// Begins a fault; call it before injecting the fault.
    pub fn begin(&self, kind: &str) -> ActiveFault<'_> {
        ActiveFault {
            nemesis: self,
            fault: Fault {
                kind: kind.into(),
                client: None,
                start_ns: now_ns(),
                end_ns: 0,
                took_effect: false,
            },
        }
    }

    /// Begins the kill of a client ([`Fault::KILL_CLIENT`]).
    pub fn kill_client(&self, client: u64) -> ActiveFault<'_> {
        self.begin(Fault::KILL_CLIENT).client(client)
    }

    /// Begins the pause of a client ([`Fault::PAUSE_CLIENT`]).
    pub fn pause_client(&self, client: u64) -> ActiveFault<'_> {
        self.begin(Fault::PAUSE_CLIENT).client(client)
    }
}

impl ActiveFault<'_> {
    /// Sets the affected client process.
    pub fn client(mut self, client: u64) -> Self {
        self.fault.client = Some(client);
        self
    }

    /// Ends the fault.
    pub fn end(mut self, took_effect: bool) {
        self.fault.took_effect = took_effect;
    }
}

impl Drop for ActiveFault<'_> {
    fn drop(&mut self) {
        self.fault.end_ns = now_ns();
        self.nemesis.log.write(&self.fault);
    }
}

impl Line for Fault {
    fn encode(&self) -> String {
        Writer::default()
            .text(&self.kind)
            .optional(self.client)
            .field(self.start_ns)
            .field(self.end_ns)
            .field(self.took_effect)
            .end()
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            kind: fields.text()?,
            client: fields.optional()?,
            start_ns: fields.value()?,
            end_ns: fields.value()?,
            took_effect: fields.value()?,
        })
    }
}

impl fmt::Display for Fault {
    /// One line, times in milliseconds of the monotonic clock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (Millis(self.start_ns), Millis(self.end_ns));
        write!(f, "{} at {start}..{end} ms", self.kind)?;
        if let Some(client) = self.client {
            write!(f, ", client {client}")?;
        }
        if !self.took_effect {
            f.write_str(", without effect")?;
        }
        Ok(())
    }
}
