//! A shared resource that checks fences.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::history::{Millis, now_ns};

/// A number in a file that many processes read, change and write back, guarded only by fences.
///
/// It is independent of the locks under test. Each access holds an operating-system lock on the file,
/// so an access is atomic. A read and a later write together are not; that is what fences are for.
/// Every access, even a refused one, goes into a journal that
/// [`check::resource`](crate::check::resource) checks.
#[derive(Debug)]
pub struct FencedRegister {
    path: PathBuf,
    fenced: bool,
}

/// An access, in the order in which the register decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The client process.
    pub client: u64,
    /// The fence it used.
    pub fence: u64,
    /// What it did.
    pub kind: AccessKind,
    /// The newest fence that the register had seen before this access.
    pub newest: u64,
    /// When the register decided, on the clock of all histories.
    pub at_ns: u64,
}

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// Got this value.
    Read(u64),
    /// Stored this value.
    Write(u64),
    /// Refused, because its fence was too old. The value stayed at this.
    Refused(u64),
}

/// The fence is older than one seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The newest fence that the resource has seen.
    pub newest: u64,
}

impl FencedRegister {
    /// Opens the register in `dir`; creates it with the value 0 if it does not exist.
    pub fn open(dir: &Path) -> Self {
        Self {
            path: dir.join("register.journal"),
            fenced: true,
        }
    }

    /// Like `open`, but without checking fences: protected only by the lock.
    pub fn open_unfenced(dir: &Path) -> Self {
        Self {
            fenced: false,
            ..Self::open(dir)
        }
    }

    /// Reads the value; from now on older fences are stale.
    pub fn read(&self, client: u64, fence: u64) -> Result<u64, Stale> {
        self.access(client, fence, AccessKind::Read)
    }

    /// Stores a value.
    pub fn write(&self, client: u64, fence: u64, value: u64) -> Result<(), Stale> {
        self.access(client, fence, |_| AccessKind::Write(value))?;
        Ok(())
    }

    /// Reads, runs `work`, and writes the value plus one. If the lock is lost during `work`, the write is
    /// stale.
    pub fn increment(&self, client: u64, fence: u64, work: impl FnOnce()) -> Result<u64, Stale> {
        let value = self.read(client, fence)?;
        work();
        self.write(client, fence, value + 1)?;
        Ok(value + 1)
    }

    /// All accesses so far.
    pub fn journal(&self) -> Vec<Access> {
        let mut file = self.lock();
        let mut text = String::new();
        file.read_to_string(&mut text)
            .expect("failed to read the register");
        let lines = text.lines();
        lines
            .map(|line| Access::decode(line).unwrap_or_else(|| panic!("damaged journal: `{line}`")))
            .collect()
    }

    fn access(
        &self,
        client: u64,
        fence: u64,
        kind: impl FnOnce(u64) -> AccessKind,
    ) -> Result<u64, Stale> {
        let mut file = self.lock();
        let State { value, newest } = State::read(&mut file);
        let stale = self.fenced && fence < newest;
        let kind = if stale {
            AccessKind::Refused(value)
        } else {
            kind(value)
        };
        let access = Access {
            client,
            fence,
            kind,
            newest,
            at_ns: now_ns(),
        };
        file.write_all(access.encode().as_bytes())
            .expect("failed to write the register");
        if stale {
            return Err(Stale { newest });
        }
        Ok(kind.value())
    }

    /// Reopened for each access, because the lock belongs to the open file, not to the process.
    fn lock(&self) -> Flock<File> {
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .read(true)
            .append(true)
            .open(&self.path);
        let file = file
            .unwrap_or_else(|error| panic!("failed to open `{}`: {error}", self.path.display()));
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(locked) => locked,
            Err((_, error)) => panic!("failed to lock `{}`: {error}", self.path.display()),
        }
    }
}

impl AccessKind {
    fn word(self) -> &'static str {
        match self {
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Refused(_) => "refused",
        }
    }

    pub(crate) fn value(self) -> u64 {
        match self {
            Self::Read(value) | Self::Write(value) | Self::Refused(value) => value,
        }
    }
}

/// The state in the last line of the journal.
#[derive(Debug, Default)]
struct State {
    value: u64,
    newest: u64,
}

impl State {
    /// The maximum length of a line: a word and five fields of at most 20 digits.
    const LINE_BYTES_MAX: u64 = 128;

    fn read(file: &mut File) -> Self {
        let length = file.metadata().expect("a file has a length").len();
        let tail_start = length.saturating_sub(Self::LINE_BYTES_MAX);
        let mut tail = String::new();
        file.seek(SeekFrom::Start(tail_start))
            .and_then(|_| file.read_to_string(&mut tail))
            .expect("failed to read the register");
        let Some(last) = tail.lines().last() else {
            return Self::default();
        };
        match Access::decode(last) {
            Some(access) => Self {
                value: access.kind.value(),
                newest: access.newest.max(access.fence),
            },
            None => panic!("damaged journal: `{last}`"),
        }
    }
}

impl Access {
    /// Whether the register accepted it.
    pub fn was_accepted(&self) -> bool {
        !matches!(self.kind, AccessKind::Refused(_))
    }

    fn encode(&self) -> String {
        let (word, value) = (self.kind.word(), self.kind.value());
        let Self {
            client,
            fence,
            newest,
            at_ns,
            ..
        } = self;
        format!("{word} {value} {client} {fence} {newest} {at_ns}\n")
    }

    fn decode(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let word = fields.next()?;
        let mut number = || fields.next()?.parse().ok();
        let value = number()?;
        Some(Self {
            client: number()?,
            fence: number()?,
            newest: number()?,
            at_ns: number()?,
            kind: match word {
                "read" => AccessKind::Read(value),
                "write" => AccessKind::Write(value),
                "refused" => AccessKind::Refused(value),
                _ => return None,
            },
        })
    }
}

impl fmt::Display for Access {
    /// One line, times in milliseconds of the monotonic clock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, fence, newest) = (self.client, self.fence, self.newest);
        write!(f, "client {client} with fence {fence} ")?;
        match self.kind {
            AccessKind::Read(value) => write!(f, "reads {value}")?,
            AccessKind::Write(value) => write!(f, "writes {value}")?,
            AccessKind::Refused(_) => write!(f, "is refused for fence {newest}")?,
        }
        write!(f, " at {} ms", Millis(self.at_ns))
    }
}
