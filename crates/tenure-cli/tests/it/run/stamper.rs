//! A process that stamps the time for as long as it lives: this test binary, started once more.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The file to stamp, and whether to do it for long.
const FILE: &str = "TENURE_STAMP_FILE";
const ONCE: &str = "TENURE_STAMP_ONCE";
const PAUSE: Duration = Duration::from_millis(3);
/// Whatever happens, no process stamps for longer.
const LIFE_MAX: u64 = 40_000_000_000;

/// The words that start a stamper in a shell, after `FILE=…`.
pub fn words() -> String {
    let program = std::env::current_exe().unwrap();
    format!("'{}' --exact run::stamper::stamps", program.display())
}

/// The variable that names the file.
pub fn file(path: &Path) -> String {
    format!("{FILE}='{}'", path.display())
}

/// The variables for one stamp in that file.
pub fn once(path: &Path) -> String {
    format!("{ONCE}=1 {}", file(path))
}

/// The last stamp in a file, in nanoseconds since the boot.
pub fn last(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().unwrap()))
}

/// When the lock was granted to the command that stamped once: its fence is the server's clock,
/// and that is the machine's.
pub fn granted(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    u64::from_le_bytes(bytes[8..16].try_into().unwrap())
}

pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

#[test]
fn stamps() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else {
        return;
    };
    let file = File::create(path).unwrap();
    if std::env::var_os(ONCE).is_some() {
        let mut stamp = now().to_le_bytes().to_vec();
        stamp.extend(granted_at().to_le_bytes());
        file.write_all_at(&stamp, 0).unwrap();
        return;
    }
    let begun = now();
    while now() - begun < LIFE_MAX {
        file.write_all_at(&now().to_le_bytes(), 0).unwrap();
        std::thread::sleep(PAUSE);
    }
}

fn granted_at() -> u64 {
    let fence: u64 = std::env::var("TENURE_FENCE").unwrap().parse().unwrap();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let wall = u64::try_from(wall.as_nanos()).unwrap();
    now() - (wall - fence * 1_000)
}
