//! Clocks of a process that the test changes while the process runs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::mutex::lock;

const SOURCE: &str = include_str!("clock_shim.c");
const NS_PER_S: i64 = 1_000_000_000;

/// The wall clock of the processes it is applied to: `CLOCK_REALTIME`, `gettimeofday`, `time`.
///
/// `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` stay correct, as on a machine whose administrator sets the
/// clock; [`sleep_through`](Self::sleep_through) sets only `CLOCK_BOOTTIME` forward. It affects only
/// programs that use the C library, not those that make system calls directly.
///
/// Clones share one clock; each [`compile`](Self::compile) returns a new one.
#[derive(Debug, Clone)]
pub struct ClockShim {
    clock: Arc<Clock>,
}

impl ClockShim {
    /// A clock that shows the real time at first. Returns `None`, with a message on standard error, if
    /// there is no C compiler (`$CC`, else `cc`) to build the preloaded library.
    pub fn compile() -> Option<Self> {
        let library = Library::get()?;
        let path = library.dir.path().join(format!("clock-{}", unique()));
        let file = open_new(&path);
        let clock = Clock {
            library,
            path,
            file,
            shift: Mutex::new(Shift::default()),
        };
        clock.write(Shift::default());
        Some(Self {
            clock: Arc::new(clock),
        })
    }

    /// Makes the process that `command` starts use this clock.
    pub fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", self.clock.library.object())
            .env("TENURE_CLOCK_SHIM", &self.clock.path);
    }

    /// Sets the clock forward at once.
    pub fn step_forward(&self, by: Duration) {
        self.step_ns(whole_ns(by));
    }

    /// Sets the clock back at once.
    pub fn step_back(&self, by: Duration) {
        self.step_ns(-whole_ns(by));
    }

    /// Sets `CLOCK_BOOTTIME` forward at once, as if the machine had been suspended for `time`. No other
    /// clock changes, so that a test can tell which of them the process uses.
    pub fn sleep_through(&self, time: Duration) {
        self.clock.change(|shift| shift.asleep_ns += whole_ns(time));
    }

    /// Makes the clock run at `rate` seconds per second from now on: `1.02` is two percent fast. It does
    /// not jump.
    pub fn set_rate(&self, rate: f64) {
        assert!(
            (0.0..=1000.0).contains(&rate),
            "a clock cannot run at rate `{rate}`"
        );
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the range was just checked"
        )]
        let rate_ppb = ((rate - 1.0) * 1e9).round() as i64;
        self.clock.change(|shift| {
            let now_ns = real_ns();
            shift.offset_ns = shift.ahead_ns(now_ns);
            shift.base_ns = now_ns;
            shift.rate_ppb = rate_ppb;
        });
    }

    /// Resets all clocks to the real time.
    pub fn reset(&self) {
        self.clock.change(|shift| {
            *shift = Shift {
                version: shift.version,
                ..Shift::default()
            };
        });
    }

    /// How many nanoseconds the clock is ahead of the real one now; negative if behind.
    pub fn ahead_ns(&self) -> i64 {
        self.clock.shift().ahead_ns(real_ns())
    }

    fn step_ns(&self, by_ns: i64) {
        self.clock.change(|shift| shift.offset_ns += by_ns);
    }
}

#[derive(Debug)]
struct Clock {
    library: Arc<Library>,
    path: PathBuf,
    file: File,
    shift: Mutex<Shift>,
}

impl Clock {
    fn change(&self, change: impl FnOnce(&mut Shift)) {
        let mut shift = lock(&self.shift);
        change(&mut shift);
        shift.version += 2;
        self.write(*shift);
    }

    fn shift(&self) -> Shift {
        *lock(&self.shift)
    }

    /// Writes an odd version, the other words, then an even version: readers retry while it is odd.
    fn write(&self, shift: Shift) {
        self.put(0, &[shift.version - 1]);
        let Shift {
            offset_ns,
            base_ns,
            rate_ppb,
            asleep_ns,
            ..
        } = shift;
        self.put(8, &[offset_ns, base_ns, rate_ppb, asleep_ns]);
        self.put(0, &[shift.version]);
    }

    fn put(&self, at: u64, words: &[i64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file
            .write_all_at(&bytes, at)
            .expect("failed to change the clock");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The file that `clock_shim.c` maps, word by word.
#[derive(Debug, Clone, Copy, Default)]
struct Shift {
    version: i64,
    offset_ns: i64,
    base_ns: i64,
    rate_ppb: i64,
    asleep_ns: i64,
}

impl Shift {
    fn ahead_ns(self, now_ns: i64) -> i64 {
        let gained = i128::from(now_ns - self.base_ns) * i128::from(self.rate_ppb);
        let gained_ns = gained / i128::from(NS_PER_S);
        self.offset_ns + i64::try_from(gained_ns).expect("offsets stay below centuries")
    }
}

/// The compiled library; deleted with the last clock that uses it.
#[derive(Debug)]
struct Library {
    dir: TempDir,
}

impl Library {
    fn get() -> Option<Arc<Self>> {
        static COMPILED: Mutex<Weak<Library>> = Mutex::new(Weak::new());
        let mut compiled = lock(&COMPILED);
        if let Some(library) = compiled.upgrade() {
            return Some(library);
        }
        let library = Arc::new(Self::compile()?);
        *compiled = Arc::downgrade(&library);
        Some(library)
    }

    #[expect(clippy::print_stderr, reason = "a skipped test must say why")]
    fn compile() -> Option<Self> {
        let dir = tempfile::Builder::new()
            .prefix("tenure-clock-")
            .tempdir()
            .expect("failed to create a directory for the clock");
        let library = Self { dir };
        let source = library.dir.path().join("clock_shim.c");
        std::fs::write(&source, SOURCE).expect("failed to write the clock's source");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let output = Command::new(&compiler)
            .args(["-O2", "-Wall", "-shared", "-fPIC", "-o"])
            .arg(library.object())
            .arg(&source)
            .arg("-ldl")
            .output();
        match output {
            Ok(output) if output.status.success() => Some(library),
            Ok(output) => panic!(
                "`{compiler}` failed to compile the clock: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => {
                eprintln!("no adjustable clock: cannot run `{compiler}`: {error}");
                None
            }
        }
    }

    fn object(&self) -> PathBuf {
        self.dir.path().join("clock_shim.so")
    }
}

fn open_new(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).open(path);
    file.expect("failed to create the clock's file")
}

fn unique() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn real_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).expect("every system has a wall clock");
    now.tv_sec() * NS_PER_S + now.tv_nsec()
}

fn whole_ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).expect("steps stay below centuries")
}
