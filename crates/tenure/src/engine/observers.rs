//! The observers of a client, by the election that they observe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::name::LockName;

/// Tells each observer when it should look again.
#[derive(Default)]
pub(crate) struct Observers {
    by_name: Mutex<HashMap<LockName, Vec<Weak<Notify>>>>,
}

impl Observers {
    /// Notified when the election may have changed, until the last clone is dropped.
    pub(crate) fn add(&self, name: &LockName) -> Arc<Notify> {
        let changed = Arc::new(Notify::new());
        let mut by_name = self.by_name();
        by_name.retain(|_, observers| {
            observers.retain(|observer| observer.strong_count() > 0);
            !observers.is_empty()
        });
        let observers = by_name.entry(name.clone()).or_default();
        observers.push(Arc::downgrade(&changed));
        changed
    }

    pub(crate) fn changed(&self, name: &LockName) {
        let by_name = self.by_name();
        notify(by_name.get(name).into_iter().flatten());
    }

    /// Messages may have been lost, or the client is closed.
    pub(crate) fn changed_all(&self) {
        notify(self.by_name().values().flatten());
    }

    /// Whether an observer needs to hear of changes.
    pub(crate) fn is_empty(&self) -> bool {
        let by_name = self.by_name();
        let mut observers = by_name.values().flatten();
        !observers.any(|observer| observer.strong_count() > 0)
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<LockName, Vec<Weak<Notify>>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notify<'a>(observers: impl Iterator<Item = &'a Weak<Notify>>) {
    for observer in observers.filter_map(Weak::upgrade) {
        observer.notify_one();
    }
}
