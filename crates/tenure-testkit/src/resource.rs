//! A resource that checks fences, shared by many processes.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// A number in a file that many processes read, change and write back, guarded only by fences.
///
/// It knows nothing of the locks under test. Each access takes an operating-system lock on the
/// file for its own duration, so an access is atomic; a read and the write that follows it are
/// not, which is what fences are for. Every accepted access goes into a journal beside the number,
/// and [`check::resource`](crate::check::resource) judges that.
#[derive(Debug)]
pub struct FencedRegister {
    path: PathBuf,
    fenced: bool,
}

/// An access that was accepted, in the order of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The client process.
    pub client: u64,
    /// The fence it showed.
    pub fence: u64,
    /// What it did.
    pub kind: AccessKind,
}

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// Got this value.
    Read(u64),
    /// Stored this value.
    Write(u64),
}

/// The fence was older than one seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The newest fence that the resource has seen.
    pub newest: u64,
}

impl FencedRegister {
    /// The register in `dir`, created with the value 0 if it does not exist.
    pub fn open(dir: &Path) -> Self {
        Self {
            path: dir.join("register.journal"),
            fenced: true,
        }
    }

    /// The same without checking fences: what a lock alone protects.
    pub fn open_unfenced(dir: &Path) -> Self {
        Self {
            fenced: false,
            ..Self::open(dir)
        }
    }

    /// The value; from now on older fences are stale.
    pub fn read(&self, client: u64, fence: u64) -> Result<u64, Stale> {
        self.access(client, fence, AccessKind::Read)
    }

    /// Stores a value.
    pub fn write(&self, client: u64, fence: u64, value: u64) -> Result<(), Stale> {
        self.access(client, fence, |_| AccessKind::Write(value))?;
        Ok(())
    }

    /// Reads, lets `work` happen, and writes one more. What happens in `work` may take the lock
    /// away; the write is then stale.
    pub fn increment(&self, client: u64, fence: u64, work: impl FnOnce()) -> Result<u64, Stale> {
        let value = self.read(client, fence)?;
        work();
        self.write(client, fence, value + 1)?;
        Ok(value + 1)
    }

    /// All accepted accesses so far.
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
        let state = State::read(&mut file);
        if self.fenced && fence < state.newest {
            return Err(Stale {
                newest: state.newest,
            });
        }
        let kind = kind(state.value);
        let access = Access {
            client,
            fence,
            kind,
        };
        file.write_all(access.encode(state.newest.max(fence)).as_bytes())
            .expect("failed to write the register");
        Ok(kind.value())
    }

    /// Opened anew for each access, for the lock belongs to the opened file and not to the process.
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
    fn value(self) -> u64 {
        match self {
            Self::Read(value) | Self::Write(value) => value,
        }
    }
}

/// What the last line of the journal says.
#[derive(Debug, Default)]
struct State {
    value: u64,
    newest: u64,
}

impl State {
    /// A line is at most so long: five fields of at most 20 digits.
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
        let newest = last.split(' ').nth(4).and_then(|field| field.parse().ok());
        match (Access::decode(last), newest) {
            (Some(access), Some(newest)) => Self {
                value: access.kind.value(),
                newest,
            },
            _ => panic!("damaged journal: `{last}`"),
        }
    }
}

impl Access {
    fn encode(&self, newest: u64) -> String {
        let (word, value) = match self.kind {
            AccessKind::Read(value) => ("read", value),
            AccessKind::Write(value) => ("write", value),
        };
        let (client, fence) = (self.client, self.fence);
        format!("{word} {value} {client} {fence} {newest}\n")
    }

    fn decode(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let word = fields.next()?;
        let mut number = || fields.next()?.parse().ok();
        let (value, client, fence) = (number()?, number()?, number()?);
        let kind = match word {
            "read" => AccessKind::Read(value),
            "write" => AccessKind::Write(value),
            _ => return None,
        };
        Some(Self {
            client,
            fence,
            kind,
        })
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, value) = match self.kind {
            AccessKind::Read(value) => ("reads", value),
            AccessKind::Write(value) => ("writes", value),
        };
        let (client, fence) = (self.client, self.fence);
        write!(f, "client {client} with fence {fence} {word} {value}")
    }
}
