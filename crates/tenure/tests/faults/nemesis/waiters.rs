//! Those who wait for a lock: the first of them die or are paused.

use std::collections::HashSet;
use std::sync::MutexGuard;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tenure_testkit::{RedisServer, eventually};

use super::{Kind, Lane};
use crate::client::HOT;
use crate::fleet::{Running, Slot};
use crate::layout;

/// What is logged beside the faults themselves: that the lock is with one that is gone.
pub const WITH_THE_GONE: &str = "with-the-gone";
/// Longer than the next ones may take to get the lock, on a crowded machine too.
const GIVE_UP: Duration = Duration::from_secs(60);
/// How many of the first ones are gone at once.
const GONE: std::ops::RangeInclusive<usize> = 6..=8;
/// So many others must get the lock: each release may meet another one that is gone.
const SERVED: usize = 8;

impl Lane<'_> {
    /// Takes the first waiters away, and ends when another client has the lock.
    pub(super) fn on_waiters(&self, kind: Kind, rng: &mut StdRng) -> bool {
        let server = self.fleet.stage.keepers()[0];
        let mut first = self.first_in_line(server, rng.random_range(GONE));
        if first.is_empty() {
            return false;
        }
        let gone: Vec<String> = first.iter().filter_map(|(_, it)| it.id.clone()).collect();
        let mut pauses = Vec::new();
        for (_, running) in &first {
            if kind == Kind::KillFirstWaiters {
                let kill = self.log.kill_client(running.number);
                running.process.kill();
                kill.end(true);
            } else {
                pauses.push(self.log.pause_client(running.number));
                running.process.pause();
            }
        }
        let fault = self.log.begin(kind.name());
        self.others_are_served(server, &gone);
        fault.end(true);
        for (slot, running) in &mut first {
            if kind == Kind::KillFirstWaiters {
                self.fleet.replace(slot, running);
            } else {
                running.process.resume();
            }
        }
        for pause in pauses {
            pause.end(true);
        }
        true
    }

    /// The processes that stand first in line, with nobody else able to touch them.
    fn first_in_line(
        &self,
        server: &RedisServer,
        most: usize,
    ) -> Vec<(&Slot, MutexGuard<'_, Running>)> {
        let waiters = layout::waiters(&mut server.client(), HOT);
        let waiters: Vec<String> = waiters
            .iter()
            .filter_map(|waiter| layout::client_of(waiter))
            .collect();
        let place = |id: &Option<String>| {
            let id = id.as_ref()?;
            waiters.iter().position(|waiter| waiter == id)
        };
        let slots = self.fleet.slots.iter().map(|slot| {
            let mut running = slot.running();
            self.fleet.hear(&mut running);
            (slot, running)
        });
        let mut in_line: Vec<_> = slots.filter(|(_, it)| place(&it.id).is_some()).collect();
        in_line.sort_by_key(|(_, running)| place(&running.id));
        in_line.truncate(most);
        in_line
    }

    /// Waits until others have got the lock several times, not counting the one who has it now.
    fn others_are_served(&self, server: &RedisServer, gone: &[String]) -> bool {
        let mut redis = server.client();
        let mut holder = || layout::holder(&mut redis, self.fleet.layout, HOT);
        let mut seen: HashSet<String> = holder().into_iter().collect();
        let enough = seen.len() + SERVED;
        let is_gone = |holder: &String| {
            layout::client_of(holder).is_some_and(|client| gone.contains(&client))
        };
        let mut with_the_gone = None;
        eventually(GIVE_UP, || {
            let holder = holder();
            if holder.as_ref().is_some_and(is_gone) {
                with_the_gone.get_or_insert_with(|| self.log.begin(WITH_THE_GONE));
            } else if let Some(blocked) = with_the_gone.take() {
                blocked.end(true);
            }
            seen.extend(holder.filter(|holder| !is_gone(holder)));
            seen.len() >= enough
        })
    }
}
