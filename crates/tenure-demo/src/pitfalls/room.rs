//! What a lock protects: a room that only one may be in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts who is inside at once. Cheap to clone; clones are the same room.
#[derive(Clone, Default)]
pub(crate) struct Room {
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    inside: AtomicUsize,
    most: AtomicUsize,
}

/// Somebody is inside until this is dropped.
#[must_use = "if unused, the visit is over at once"]
pub(crate) struct Visit {
    counts: Arc<Counts>,
}

impl Room {
    pub(crate) fn enter(&self) -> Visit {
        let counts = Arc::clone(&self.counts);
        let inside = counts.inside.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(inside, Ordering::SeqCst);
        Visit { counts }
    }

    /// The most that ever were inside at once.
    pub(crate) fn most(&self) -> usize {
        self.counts.most.load(Ordering::SeqCst)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.counts.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
