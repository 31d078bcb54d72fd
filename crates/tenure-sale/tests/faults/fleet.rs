//! All processes of the sale, each behind a proxy of its own where servers do not name each other.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::patience::stretched;
use tenure_testkit::{ClientProcess, Proxy, Seed};

use crate::client::{Order, Role};
use crate::stage::Stage;

pub const INSTANCES: u64 = 4;
const CONSUMERS: u64 = 3;
/// How long a process may take to end: its longest call.
const FINISH_LIMIT: Duration = Duration::from_secs(40);

pub struct Fleet<'a> {
    pub stage: &'a Stage,
    pub slots: Vec<Slot>,
    time: Duration,
    dir: PathBuf,
    seed: u64,
    numbers: AtomicU64,
    said: Mutex<Vec<String>>,
}

/// A place for one process after the other.
pub struct Slot {
    pub role: Role,
    pub proxy: Option<Proxy>,
    running: Mutex<Running>,
}

pub struct Running {
    pub number: u64,
    pub process: ClientProcess,
    /// The step at which it is to die by itself.
    pub failpoint: Option<String>,
}

impl<'a> Fleet<'a> {
    pub fn start(stage: &'a Stage, dir: &Path, seed: Seed, time: Duration) -> Self {
        let mut fleet = Self {
            stage,
            slots: Vec::new(),
            time,
            dir: dir.to_owned(),
            seed: seed.to_string().parse().unwrap(),
            numbers: AtomicU64::new(0),
            said: Mutex::default(),
        };
        let roles = [(Role::Instance, INSTANCES), (Role::Consumer, CONSUMERS)];
        for (role, count) in roles {
            for _ in 0..count {
                let proxy = stage.proxy();
                let running = Mutex::new(fleet.spawn(role, proxy.as_ref(), None));
                fleet.slots.push(Slot {
                    role,
                    proxy,
                    running,
                });
            }
        }
        fleet
    }

    /// Puts a new process in the place of one that has died, perhaps to die at a step by itself.
    pub fn replace(&self, slot: &Slot, running: &mut Running, failpoint: Option<String>) {
        self.hear(slot, running);
        *running = self.spawn(slot.role, slot.proxy.as_ref(), failpoint);
    }

    /// Replaces those that are still to die at a step: they would not be replaced later.
    pub fn disarm(&self) {
        for slot in &self.slots {
            let mut running = slot.running();
            if running.failpoint.is_some() {
                running.process.kill();
                self.replace(slot, &mut running, None);
            }
        }
    }

    /// Lets all processes of a role come to their end; what they should not have said or done.
    pub fn finish(&self, role: Role) -> Vec<String> {
        let slots = || self.slots.iter().filter(|slot| slot.role == role);
        for slot in slots() {
            slot.running().process.send_line("finish");
        }
        for slot in slots() {
            let running = slot.running();
            let (name, number) = (role.name(), running.number);
            match running.process.wait(stretched(FINISH_LIMIT)) {
                Some(status) if status.success() => {}
                Some(status) => self.complain(format!("{name} {number} ended with {status}")),
                None => self.complain(format!("{name} {number} hung for {FINISH_LIMIT:?}")),
            }
            self.hear(slot, &running);
        }
        std::mem::take(&mut *lock(&self.said))
    }

    /// How many processes there were, by role.
    pub fn processes(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    pub fn complain(&self, what: String) {
        lock(&self.said).push(what);
    }

    fn spawn(&self, role: Role, proxy: Option<&Proxy>, failpoint: Option<String>) -> Running {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let order = Order {
            number,
            seed: self.seed,
            role,
            time: self.time,
            gate_url: self.stage.gate_url(proxy),
            ledger_url: self.stage.ledger_url(),
            dir: self.dir.clone(),
        };
        Running {
            number,
            process: ClientProcess::spawn(&order.command(failpoint.as_deref())),
            failpoint,
        }
    }

    /// Takes in what a process has said, which should be nothing.
    fn hear(&self, slot: &Slot, running: &Running) {
        let stderr = running.process.stderr();
        if !stderr.is_empty() {
            let (name, number) = (slot.role.name(), running.number);
            self.complain(format!("{name} {number} on stderr: {stderr}"));
        }
    }
}

impl Slot {
    pub fn running(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
