//! Resources of the process, for Prometheus, under the usual names. A system without Linux's
//! `/proc` has fewer of them.

use std::fmt;
use std::fs;
use std::str::FromStr;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks per second in `/proc/self/stat`: fixed by the kernel's interface.
const TICKS_A_SECOND: f64 = 100.0;
const KIB: i64 = 1_024;

#[derive(Debug)]
pub(crate) struct Process {
    /// Seconds since 1970.
    started_at: f64,
}

impl Process {
    pub(crate) fn new(started_at: SystemTime) -> Self {
        let since = started_at.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            started_at: since.unwrap_or_default().as_secs_f64(),
        }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut encode = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(encoder)
        };
        encode(
            "process_start_time_seconds",
            "Start time of the process in seconds since 1970",
            &ConstGauge::new(self.started_at),
        )?;
        if let Some(seconds) = processor_seconds() {
            let (name, help) = ("process_cpu_seconds", "User and system CPU time");
            encode(name, help, &ConstCounter::new(seconds))?;
        }
        if let Some(kib) = of_status("VmRSS") {
            let (name, help) = ("process_resident_memory_bytes", "Resident memory");
            encode(name, help, &ConstGauge::new(kib * KIB))?;
        }
        if let Some(count) = open_files() {
            let (name, help) = ("process_open_fds", "Open file descriptors");
            encode(name, help, &ConstGauge::new(count))?;
        }
        if let Some(count) = files_max() {
            let (name, help) = ("process_max_fds", "Maximum open file descriptors");
            encode(name, help, &ConstGauge::new(count))?;
        }
        Ok(())
    }
}

fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name before it may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11).map(f64::from_str);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((user + system) / TICKS_A_SECOND)
}

fn of_status(field: &str) -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let found = status.lines().find_map(|line| line.strip_prefix(field))?;
    number(found.trim_start_matches(':'))
}

fn open_files() -> Option<i64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // Without the descriptor that was opened to count them.
    i64::try_from(count).ok()?.checked_sub(1)
}

fn files_max() -> Option<i64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let mut lines = limits.lines();
    number(lines.find_map(|line| line.strip_prefix("Max open files"))?)
}

fn number(text: &str) -> Option<i64> {
    text.split_whitespace().next()?.parse().ok()
}
