//! Where servers keep their files: in memory, unless a run is about the disk too.
//!
//! A server that syncs its append-only file before each reply waits for the disk, and a disk that is
//! busy with a build lets it wait for seconds. No test of a lock is about that, and it does not show as
//! a stall of the machine. A file in memory outlives its server as well.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::statvfs::statvfs;
use tempfile::{Builder, TempDir};

/// The file system in memory of Linux.
const IN_MEMORY: &str = "/dev/shm";
/// Containers often have 64 MiB there, which the servers of a test can fill.
const ENOUGH: u64 = 2 << 30;

static ON_DISK: AtomicBool = AtomicBool::new(false);

/// Makes the servers of this process keep their files on the disk. Call it before the first one starts.
pub fn keep_servers_on_disk() {
    ON_DISK.store(true, Ordering::Relaxed);
}

/// A directory for the files of one server.
pub(crate) fn server_dir(prefix: &str) -> TempDir {
    // PostgreSQL runs as another user when the tests run as root.
    let mut builder = Builder::new();
    builder
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o755));
    builder
        .tempdir_in(&*PARENT)
        .expect("failed to create a directory for a server")
}

/// The directory that has those of all servers of this process.
static PARENT: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut builder = Builder::new();
    builder
        .prefix("tenure-servers-")
        .permissions(Permissions::from_mode(0o755));
    let in_memory = Path::new(IN_MEMORY);
    let dir = if !ON_DISK.load(Ordering::Relaxed) && free_bytes(in_memory) >= ENOUGH {
        builder.tempdir_in(in_memory)
    } else {
        builder.tempdir()
    };
    let dir = dir
        .expect("failed to create a directory for servers")
        .keep();
    remove_on_exit(&dir);
    dir
});

fn free_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |stat| stat.blocks_available() * stat.fragment_size())
}

/// Removes the directory when this process ends, however it ends: statics are never dropped, and
/// neither are the values of a killed process.
fn remove_on_exit(dir: &Path) {
    let script = "cat >/dev/null; sleep 1; rm -rf -- \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(dir);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Ok(child) = command.spawn() {
        // Its input ends when this process does.
        std::mem::forget(child);
    }
}
