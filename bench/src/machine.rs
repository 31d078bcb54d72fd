//! The machine: what the figures were taken on, and who else used it meanwhile.

use std::fs;
use std::process::Command;
use std::time::Instant;

use tenure_testkit::RedisServer;

/// The unit in which `/proc` counts CPU time.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time so far, in ticks.
struct Ticks {
    /// What all programs of the machine used.
    machine: u64,
    /// What the machine would have used but did not get: another guest had the core.
    stolen: u64,
    /// What this run used: its server, its children, itself.
    ours: u64,
}

/// Watches who uses the machine from here on.
pub struct Machine {
    begun: Instant,
    before: Ticks,
}

impl Machine {
    pub fn watch(server: &RedisServer) -> Self {
        Self {
            begun: Instant::now(),
            before: Ticks::read(server),
        }
    }

    /// What to know about the figures.
    pub fn describe(&self, server: &RedisServer) -> String {
        let now = Ticks::read(server);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let seconds = self.begun.elapsed().as_secs_f64();
        let all = seconds * TICKS_PER_SECOND * cores as f64;
        let machine = now.machine - self.before.machine;
        let others = machine.saturating_sub(now.ours - self.before.ours);
        let stolen = now.stolen - self.before.stolen;
        format!(
            "{cores} cores, Linux {}, Redis {} on loopback without persistence, {}. The run took \
             {seconds:.0} s; others used {:.0} % of the machine meanwhile, {:.0} % was stolen.",
            file("/proc/sys/kernel/osrelease").trim(),
            redis_version(server),
            rustc_version(),
            others as f64 * 100.0 / all,
            stolen as f64 * 100.0 / all,
        )
    }
}

impl Ticks {
    fn read(server: &RedisServer) -> Self {
        let stat = file("/proc/stat");
        let fields = numbers(stat.lines().next().unwrap_or_default());
        let at = |index: usize| fields.get(index).copied().unwrap_or_default();
        // user nice system idle iowait irq softirq steal
        let machine = at(0) + at(1) + at(2) + at(5) + at(6);
        let own = process_ticks("/proc/self/stat");
        let server = process_ticks(&format!("/proc/{}/stat", server.pid()));
        Self {
            machine,
            stolen: at(7),
            ours: own + server,
        }
    }
}

/// The CPU time that a process has used so far, in microseconds.
pub fn process_micros(pid: u32) -> f64 {
    let ticks = process_ticks(&format!("/proc/{pid}/stat"));
    ticks as f64 * 1e6 / TICKS_PER_SECOND
}

/// What a process and those of its children that have ended used.
fn process_ticks(path: &str) -> u64 {
    let stat = file(path);
    // The second field is the program's name in parentheses and may itself contain anything.
    let rest = stat.rsplit(") ").next().unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let spent = fields.get(11..15).unwrap_or_default();
    let spent = spent.iter().filter_map(|ticks| ticks.parse::<u64>().ok());
    spent.sum()
}

fn numbers(line: &str) -> Vec<u64> {
    let words = line.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

fn redis_version(server: &RedisServer) -> String {
    let info = server.client().command(&["INFO", "server"]);
    let mut lines = info.text().lines();
    let version = lines.find_map(|line| line.strip_prefix("redis_version:"));
    version.unwrap_or("?").trim().to_owned()
}

fn rustc_version() -> String {
    let said = Command::new("rustc").arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let said = said.unwrap_or_default();
    let words: Vec<&str> = said.split_whitespace().take(2).collect();
    words.join(" ")
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
