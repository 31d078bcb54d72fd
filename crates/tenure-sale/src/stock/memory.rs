//! Units in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tenure::Fence;

use super::Take;
use crate::error::{Error, ErrorKind, Result};

/// Named stores that are still in use.
static SHARED: Mutex<Option<HashMap<String, Weak<Shelves>>>> = Mutex::new(None);

/// The items on sale, shared by all stocks of one `memory://name`.
#[derive(Default)]
struct Shelves {
    // A std mutex, not an async one: no call waits while it is held.
    items: Mutex<HashMap<String, Units>>,
}

struct Units {
    left: u64,
    /// The greatest fence seen.
    fence: Option<Fence>,
}

#[derive(Clone)]
pub(super) struct MemoryShelf {
    shelves: Arc<Shelves>,
    item: Arc<str>,
}

impl MemoryShelf {
    /// Opens the store named `store`; a private one if the name is empty.
    pub(super) fn open(store: &str, item: &str) -> Result<Self> {
        let store = store.trim_end_matches('/');
        if store.contains(['?', '#', '@', '/']) {
            return Err(Error::new(
                ErrorKind::InvalidUrl,
                "invalid URL: use `memory://` or `memory://name`",
            ));
        }
        Ok(Self {
            shelves: shelves(store),
            item: item.into(),
        })
    }

    pub(super) fn load(&self, units: u64) -> Result<()> {
        let mut items = self.items();
        if items.contains_key(&*self.item) {
            return Err(Error::already_loaded(&self.item));
        }
        let loaded = Units {
            left: units,
            fence: None,
        };
        items.insert(self.item.to_string(), loaded);
        Ok(())
    }

    pub(super) fn left(&self) -> Result<u64> {
        let items = self.items();
        let units = items.get(&*self.item).map(|units| units.left);
        units.ok_or_else(|| Error::not_loaded(&self.item))
    }

    pub(super) fn set(&self, units: u64) -> Result<()> {
        let mut items = self.items();
        let Some(found) = items.get_mut(&*self.item) else {
            return Err(Error::not_loaded(&self.item));
        };
        found.left = units;
        Ok(())
    }

    pub(super) fn take_one(&self, fence: Fence) -> Take {
        let mut items = self.items();
        let Some(units) = items.get_mut(&*self.item) else {
            return Take::NotLoaded;
        };
        if let Some(seen) = units.fence.filter(|seen| *seen > fence) {
            return Take::Stale { seen };
        }
        units.fence = Some(fence);
        let Some(left) = units.left.checked_sub(1) else {
            return Take::SoldOut;
        };
        units.left = left;
        Take::Taken { left }
    }

    pub(super) fn remove(&self) {
        self.items().remove(&*self.item);
    }

    fn items(&self) -> MutexGuard<'_, HashMap<String, Units>> {
        let items = &self.shelves.items;
        items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shelves(store: &str) -> Arc<Shelves> {
    if store.is_empty() {
        return Arc::default();
    }
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let stores = shared.get_or_insert_default();
    stores.retain(|_, store| store.strong_count() > 0);
    if let Some(store) = stores.get(store).and_then(Weak::upgrade) {
        return store;
    }
    let opened = Arc::default();
    stores.insert(store.to_owned(), Arc::downgrade(&opened));
    opened
}
