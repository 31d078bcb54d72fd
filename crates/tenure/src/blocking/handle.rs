//! A client that threads share, and what each thread holds through it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::holds::Holds;
use crate::lease::ClientId;

/// How long the last handle waits for releases in flight.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// This thread as an owner, for each client it has used.
    static OWNERS: RefCell<HashMap<ClientId, ThreadOwner>> = RefCell::default();
}

/// The locks that this thread holds through one client. It does not keep the client alive.
struct ThreadOwner {
    handle: Weak<Handle>,
    holds: Arc<Holds>,
}

/// The client of all handles, locks and guards that were made from each other.
pub(super) struct Handle {
    pub(super) locks: crate::Locks,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.locks.core().pending.wait_blocking(FAREWELL_MAX);
    }
}

/// The locks that this thread holds through a client.
pub(super) fn holds_of_this_thread(handle: &Arc<Handle>) -> Arc<Holds> {
    let holds = OWNERS.try_with(|owners| {
        let mut owners = owners.borrow_mut();
        // Entries of dropped clients: nothing else removes them.
        owners.retain(|_, owner| owner.handle.strong_count() > 0);
        let owner = owners.entry(handle.locks.id());
        let owner = owner.or_insert_with(|| ThreadOwner {
            handle: Arc::downgrade(handle),
            holds: Arc::default(),
        });
        Arc::clone(&owner.holds)
    });
    // During thread exit the thread-local is gone: each call is then a new owner.
    holds.unwrap_or_default()
}
