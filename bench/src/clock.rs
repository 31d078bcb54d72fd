//! Clocks and counters of the system: time that two processes can compare, CPU, memory.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: the same for all processes of one machine, which an
/// [`Instant`] is too, but does not show.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// The moment at which [`monotonic_ns`] shows `ns`, or now if that has passed.
pub fn instant_at(ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(ns.saturating_sub(monotonic_ns()))
}

/// How much CPU time all threads of this process have used.
pub fn own_cpu() -> Duration {
    Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ProcessCPUTime)))
}

/// How much CPU time the main thread of another process has used, in nanoseconds. Redis runs its
/// commands there.
pub fn main_thread_cpu_ns(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/schedstat");
    let text = fs::read_to_string(&path).expect("this kernel counts CPU time in nanoseconds");
    let first = text.split_whitespace().next();
    let cpu = first.and_then(|cpu| cpu.parse().ok());
    cpu.expect("the first number is the time on the CPU")
}

/// How much memory of this process is resident, in bytes.
pub fn own_rss() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    let kib: Option<u64> = kib.and_then(|kib| kib.parse().ok());
    kib.expect("the kernel tells the resident memory") * 1_024
}

fn nanoseconds(time: Timespec) -> u64 {
    let parts = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    let (Ok(seconds), Ok(nanoseconds)) = parts else {
        panic!("a clock showed `{time:?}`");
    };
    seconds * 1_000_000_000 + nanoseconds
}
