//! Processes of the sale, killed from outside or at a step of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::Nemesis;

use super::{Kind, Lane, random_time};
use crate::client::{IDLE, Role};
use crate::fleet::{Fleet, Slot};

/// The named steps of the engine, with the role that comes by there.
pub const FAILPOINTS: &[(&str, Role)] = &[
    ("gate.after_script", Role::Instance),
    ("move.after_give", Role::Instance),
    ("move.after_receive", Role::Instance),
    ("consumer.after_read", Role::Consumer),
    ("consumer.before_commit", Role::Consumer),
    ("consumer.after_commit", Role::Consumer),
    ("consumer.before_ack", Role::Consumer),
    ("relay.before_apply", Role::Consumer),
    ("rebuild.after_epoch", Role::Consumer),
    ("rebuild.after_begin_load", Role::Consumer),
];
/// How often it is looked for processes that have died at their step.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Lane<'_> {
    pub(super) fn on_process(&self, kind: Kind, role: Role, rng: &mut StdRng) {
        let slot = self.random_slot(role, rng);
        let mut running = slot.running();
        let fault = self.log.begin(kind.name()).client(running.number);
        match kind {
            Kind::KillInstance | Kind::KillConsumer => {
                running.process.kill();
                self.fleet.replace(slot, &mut running, None);
            }
            // Now and then for so long that others take over what it had; then it goes on.
            Kind::PauseInstance | Kind::PauseConsumer => {
                let long = if rng.random_bool(0.5) {
                    IDLE
                } else {
                    Duration::ZERO
                };
                running.process.pause();
                thread::sleep(random_time(rng) + long);
                running.process.resume();
            }
            other => unreachable!("`{}` is not done to processes", other.name()),
        }
        fault.end(true);
    }

    /// Replaces a process by one that will die at a step by itself.
    pub(super) fn plant(&self, rng: &mut StdRng) {
        let (step, role) = *FAILPOINTS.choose(rng).unwrap();
        let slot = self.random_slot(role, rng);
        let mut running = slot.running();
        if running.failpoint.is_some() {
            // It has not come to its step yet.
            return;
        }
        running.process.kill();
        let times = match step.split('.').next() {
            Some("rebuild") => 1,
            Some("move") => rng.random_range(1..4),
            _ => rng.random_range(1..20),
        };
        let failpoint = format!("{step}@{times}");
        self.fleet.replace(slot, &mut running, Some(failpoint));
    }

    fn random_slot(&self, role: Role, rng: &mut StdRng) -> &Slot {
        let slots: Vec<&Slot> = self.fleet.slots.iter().collect();
        let of_role: Vec<&&Slot> = slots.iter().filter(|slot| slot.role == role).collect();
        of_role.choose(rng).unwrap()
    }
}

/// Replaces those that have died at their step, and finds those that died without one.
pub fn watch_failpoints(fleet: &Fleet<'_>, log: &Nemesis, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
        for slot in &fleet.slots {
            // One that is just being paused or killed has its death explained.
            let mut running = slot.running();
            if running.process.is_running() {
                continue;
            }
            if let Some(failpoint) = running.failpoint.take() {
                let step = failpoint.split('@').next().unwrap_or_default();
                let fault = log.begin(&format!("die-at {step}"));
                fault.client(running.number).end(true);
            } else {
                let (role, number) = (slot.role.name(), running.number);
                fleet.complain(format!("{role} {number} died by itself"));
            }
            fleet.replace(slot, &mut running, None);
        }
    }
}
