//! A fence checked by a file: its first line is the greatest fence that has written it.
//!
//! Two holders write a file. The first is paused for longer than its lease, the second gets the
//! lock and writes, then the first wakes up and writes too. The header refuses it.
//!
//! ```sh
//! cargo run -p tenure --example fence_file
//! ```
//!
//! It prints:
//!
//! ```text
//! old holder: got the lock and is paused
//! new holder: got the lock with a greater fence, wrote `new`
//! old holder: wakes up and wants to write `old`: refused, its fence is too old
//! the file says: new
//! ```
//!
//! `flock` makes check and write one step, for the processes of one machine. It does not replace
//! the lock: between machines, `flock` works on few file systems, and it knows no leases.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tenure::Fence;
use tenure::blocking::Tenure;

const LEASE: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("tenure-fence-{}", std::process::id()));
    let result = run(&path, &mut io::stdout());
    std::fs::remove_file(path)?;
    result
}

pub(crate) fn run(path: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // Two clients, as if in two processes.
    let (old, new) = (connect()?, connect()?);

    // `fixed`: this lease is not renewed, as if the whole process were paused.
    let old_guard = old.lock("report").ttl(LEASE).no_renewal().acquire()?;
    writeln!(out, "old holder: got the lock and is paused")?;
    thread::sleep(LEASE);

    let new_guard = new.lock("report").acquire()?;
    assert!(write_file(path, "new", new_guard.fence())?);
    writeln!(
        out,
        "new holder: got the lock with a greater fence, wrote `new`"
    )?;
    new_guard.release()?;

    write!(out, "old holder: wakes up and wants to write `old`: ")?;
    let outcome = if write_file(path, "old", old_guard.fence())? {
        "written, and what the new holder wrote is lost"
    } else {
        "refused, its fence is too old"
    };
    writeln!(out, "{outcome}")?;
    let text = std::fs::read_to_string(path)?;
    let (_, content) = parse(&text)?;
    writeln!(out, "the file says: {content}")?;
    Ok(())
}

/// Writes only if no greater fence was here before.
///
/// It writes in place: a new file that is renamed over the old one would have a lock of its own.
/// So a crash in between can leave half a file; keep what must survive that elsewhere, and only
/// the fence here.
fn write_file(path: &Path, content: &str, fence: Fence) -> io::Result<bool> {
    let mut file = open_locked(path)?;
    let mut found = String::new();
    file.read_to_string(&mut found)?;
    let (seen, _) = parse(&found)?;
    if fence < seen {
        return Ok(false);
    }
    file.rewind()?;
    file.set_len(0)?;
    write!(file, "{fence}\n{content}")?;
    file.sync_all()?;
    Ok(true)
}

/// The file, which nobody else reads or writes by this function until it is dropped.
fn open_locked(path: &Path) -> io::Result<Flock<File>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    let locked = Flock::lock(file.open(path)?, FlockArg::LockExclusive);
    locked.map_err(|(_, error)| error.into())
}

/// The header and the content; an empty file has seen no fence.
fn parse(text: &str) -> io::Result<(Fence, &str)> {
    if text.is_empty() {
        return Ok((Fence::new(0), ""));
    }
    let parts = text.split_once('\n');
    let parsed = parts.and_then(|(fence, content)| Some((fence.parse().ok()?, content)));
    let (fence, content) =
        parsed.ok_or_else(|| io::Error::other("the first line of the file is no fence"))?;
    Ok((Fence::new(fence), content))
}

fn connect() -> Result<Tenure, tenure::Error> {
    Tenure::connect("memory://fence-file")
}
