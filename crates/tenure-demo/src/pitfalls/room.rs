//! A critical section that a lock protects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts how many holders are inside at once. Cheap to clone; clones share the counts.
#[derive(Clone, Default)]
pub(crate) struct Room {
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    inside: AtomicUsize,
    most: AtomicUsize,
}

/// Counts as inside until dropped.
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

    /// The maximum number inside at once.
    pub(crate) fn most(&self) -> usize {
        self.counts.most.load(Ordering::SeqCst)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.counts.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
