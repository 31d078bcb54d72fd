//! All client processes, each behind proxies of its own where servers do not name each other.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::Layout;
use tenure_testkit::{ClientProcess, Proxy, Seed};

use crate::client::{Access, Order};
use crate::phase::Clients;
use crate::stage::Stage;

/// Every fourth process uses the blocking API.
const BLOCKING_EVERY: usize = 4;
/// How long a client may take to end: its longest call, and the return of what it holds.
const FINISH_LIMIT: Duration = Duration::from_secs(15);

pub struct Fleet<'a> {
    pub stage: &'a Stage,
    pub layout: Layout,
    pub clients: Clients,
    pub slots: Vec<Slot>,
    dir: PathBuf,
    seed: u64,
    numbers: AtomicU64,
    faults: AtomicU64,
    said: Mutex<Said>,
}

/// A place for one client process after the other.
pub struct Slot {
    /// One for each server that clients know, in the servers' order.
    pub proxies: Vec<Proxy>,
    blocking: bool,
    running: Mutex<Running>,
}

pub struct Running {
    pub number: u64,
    pub process: ClientProcess,
    /// The last counts it told.
    counts: BTreeMap<String, u64>,
    handed_off: u64,
    pub id: Option<String>,
}

/// What clients have said, those that were killed included.
#[derive(Default)]
struct Said {
    counts: BTreeMap<String, u64>,
    handed_off: u64,
    complaints: Vec<String>,
}

/// What is known when all clients have ended.
#[derive(Default)]
pub struct Finished {
    pub clients: u64,
    pub operations: BTreeMap<String, u64>,
    /// Locks that were handed off inside a process.
    pub handed_off: u64,
    /// Calls that took too long, errors that no fault explains, leases that were left.
    pub complaints: Vec<String>,
    /// Panics, bad ends, and clients that did not end.
    pub crashes: Vec<String>,
    /// The identities of clients that ended in order, and so must have left nothing.
    pub tidy: HashSet<String>,
}

impl<'a> Fleet<'a> {
    pub fn start(
        stage: &'a Stage,
        layout: Layout,
        clients: Clients,
        dir: &Path,
        seed: Seed,
    ) -> Self {
        let mut fleet = Self {
            stage,
            layout,
            clients,
            slots: Vec::new(),
            dir: dir.to_owned(),
            seed: seed.to_string().parse().unwrap(),
            numbers: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            said: Mutex::default(),
        };
        for number in 0..clients.processes {
            let proxies = stage.proxies();
            let blocking = number % BLOCKING_EVERY == BLOCKING_EVERY - 1;
            let running = fleet.spawn(&proxies, blocking);
            fleet.slots.push(Slot {
                proxies,
                blocking,
                running: Mutex::new(running),
            });
        }
        fleet
    }

    /// Puts a new process in the place of one that was killed.
    pub fn replace(&self, slot: &Slot, running: &mut Running) {
        self.hear(running);
        self.bury(running);
        *running = self.spawn(&slot.proxies, slot.blocking);
    }

    pub fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// How many operations clients have told of so far.
    pub fn operations(&self) -> u64 {
        let mut operations = 0;
        for slot in &self.slots {
            // One that is just being paused or killed is counted the next time.
            if let Ok(mut running) = slot.running.try_lock() {
                self.hear(&mut running);
                operations += running.counts.values().sum::<u64>();
            }
        }
        operations + lock(&self.said).counts.values().sum::<u64>()
    }

    /// Lets all clients come to their end.
    pub fn finish(self) -> Finished {
        let mut finished = Finished::default();
        for slot in &self.slots {
            slot.running().process.send_line("finish");
        }
        for slot in &self.slots {
            let mut running = slot.running();
            let ended = running.process.wait(FINISH_LIMIT);
            self.hear(&mut running);
            let number = running.number;
            match ended {
                Some(status) if status.success() => finished.tidy.extend(running.id.clone()),
                Some(status) => {
                    let crash = format!("client {number} ended with {status}");
                    finished.crashes.push(crash);
                }
                None => {
                    let crash = format!("client {number} hung for {FINISH_LIMIT:?}");
                    finished.crashes.push(crash);
                }
            }
            self.bury(&running);
        }
        let said = self.said.into_inner().unwrap();
        finished.clients = self.numbers.into_inner();
        finished.operations = said.counts;
        finished.handed_off = said.handed_off;
        let (crashes, complaints) = said
            .complaints
            .into_iter()
            .partition::<Vec<_>, _>(|complaint| complaint.contains("panicked"));
        finished.crashes.extend(crashes);
        finished.complaints = complaints;
        finished
    }

    /// The URLs that clients get; without proxies the servers themselves.
    pub fn access(&self, proxies: &[Proxy]) -> Access {
        Access {
            urls: self.stage.urls(proxies, self.layout),
            longest_ttl: self.clients.longest_ttls[0],
            after_failover: self.clients.after_failover,
            replicas: if self.clients.replicated {
                self.stage.replicas()
            } else {
                0
            },
        }
    }

    /// How many operations a client has told of so far.
    pub fn operations_of(&self, running: &mut Running) -> u64 {
        self.hear(running);
        running.counts.values().sum()
    }

    /// How much a client has sent so far, or done where there is no proxy to count.
    pub fn activity(&self, slot: &Slot, running: &mut Running) -> u64 {
        if slot.proxies.is_empty() {
            self.hear(running);
            return running.counts.values().sum();
        }
        let counts = slot.proxies.iter().map(Proxy::counts);
        counts.map(|counts| counts.request_chunks).sum()
    }

    fn spawn(&self, proxies: &[Proxy], blocking: bool) -> Running {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let ttls = self.clients.longest_ttls;
        let at = usize::try_from(number).unwrap_or(0) % ttls.len();
        let access = Access {
            longest_ttl: ttls[at],
            ..self.access(proxies)
        };
        let order = Order {
            number,
            access,
            role: self.clients.role,
            mixed_turns: self.clients.mixed_turns,
            dir: self.dir.clone(),
            seed: self.seed,
            blocking,
        };
        Running {
            number,
            process: ClientProcess::spawn(&order.command()),
            counts: BTreeMap::new(),
            handed_off: 0,
            id: None,
        }
    }

    /// Takes in what a process has said since.
    pub fn hear(&self, running: &mut Running) {
        while let Some(line) = running.process.read_line(Duration::ZERO) {
            match line.split_once(' ') {
                Some(("counts", counts)) => running.counts = parse_counts(counts),
                Some(("handed_off", count)) => {
                    // A process that is killed may leave half a line.
                    running.handed_off = count.parse().unwrap_or(running.handed_off);
                }
                Some(("id", id)) => running.id = Some(id.to_owned()),
                _ => {
                    let complaint = format!("client {}: {line}", running.number);
                    lock(&self.said).complaints.push(complaint);
                }
            }
        }
    }

    /// Adds what a process has done and said to what all did.
    fn bury(&self, running: &Running) {
        let mut said = lock(&self.said);
        said.handed_off += running.handed_off;
        for (kind, count) in &running.counts {
            *said.counts.entry(kind.clone()).or_default() += count;
        }
        let stderr = running.process.stderr();
        if !stderr.is_empty() {
            let complaint = format!("client {} on stderr: {stderr}", running.number);
            said.complaints.push(complaint);
        }
    }
}

impl Slot {
    /// Tells its client to rest or to work.
    pub fn tell(&self, word: &str) {
        self.running().process.send_line(word);
    }

    pub fn running(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
    }
}

fn parse_counts(text: &str) -> BTreeMap<String, u64> {
    let counts = text.split(';').filter_map(|count| count.split_once('='));
    counts
        .filter_map(|(kind, count)| Some((kind.to_owned(), count.parse().ok()?)))
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
