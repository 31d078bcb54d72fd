//! Requests that wait here and have an owner. Other clients see only that this service waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::ClientId;
use tenure_view::holders::LockReport;

/// How many are listed for each lock.
const NAMED_MAX: usize = 100;

/// Waiting requests by lock, in order of arrival. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    by_lock: HashMap<String, BTreeMap<u64, String>>,
    came: u64,
}

/// A waiting request. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Caller {
    of: Callers,
    name: String,
    number: u64,
}

impl Callers {
    /// Adds a waiter with its owner.
    pub(crate) fn wait(&self, name: &str, owner: &str) -> Caller {
        let mut waiting = self.waiting();
        waiting.came += 1;
        let number = waiting.came;
        let of_lock = waiting.by_lock.entry(name.to_owned()).or_default();
        of_lock.insert(number, owner.to_owned());
        drop(waiting);
        Caller {
            of: self.clone(),
            name: name.to_owned(),
            number,
        }
    }

    /// The report with the owners of the requests that wait here.
    pub(crate) fn named(&self, here: &ClientId, mut lock: LockReport) -> LockReport {
        let here = here.to_string();
        let mut waiters = lock.waiters.iter_mut();
        if let Some(waiter) = waiters.find(|waiter| waiter.client.client == here) {
            let waiting = self.waiting();
            let owners = waiting.by_lock.get(&lock.name).into_iter();
            let owners = owners.flat_map(BTreeMap::values).take(NAMED_MAX);
            waiter.owners = owners.cloned().collect();
        }
        lock
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut waiting = self.of.waiting();
        if let Some(of_lock) = waiting.by_lock.get_mut(&self.name) {
            of_lock.remove(&self.number);
            if of_lock.is_empty() {
                waiting.by_lock.remove(&self.name);
            }
        }
    }
}
