//! The snapshots that readers of a feed are being sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;

/// How many bytes of snapshots one feed keeps for readers that have not read them yet. The newest is
/// kept even if it is longer.
const BYTES_MAX: usize = 64 << 20;

/// The snapshots that readers are being sent. Beyond the limit the oldest are dropped, and readers that
/// are still being sent one of those are disconnected: a reader that reads nothing must not keep
/// memory, and no other reader is refused because of it.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    kept: Mutex<VecDeque<Arc<Bytes>>>,
}

impl Snapshots {
    /// Keeps a snapshot for as long as it is being sent, within the limit.
    pub(super) fn keep(&self, text: Bytes) -> Arc<Bytes> {
        let text = Arc::new(text);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_being_sent = |text: &Arc<Bytes>| Arc::weak_count(text) > 0;
        kept.retain(is_being_sent);
        kept.push_back(Arc::clone(&text));
        let mut bytes: usize = kept.iter().map(|text| text.len()).sum();
        while bytes > BYTES_MAX && kept.len() > 1 {
            bytes -= kept.pop_front().map_or(0, |oldest| oldest.len());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::outgoing::Outgoing;
    use super::*;

    const MEBI: usize = 1 << 20;

    fn kept_bytes(snapshots: &Snapshots) -> usize {
        let kept = snapshots.kept.lock().unwrap();
        kept.iter().map(|text| text.len()).sum()
    }

    #[test]
    fn readers_that_never_read_keep_no_more_than_the_limit() {
        let snapshots = Snapshots::default();
        let snapshot = || {
            let text = snapshots.keep(vec![b'x'; 13 * MEBI].into());
            Outgoing::whole(&text)
        };
        let mut unread: Vec<Outgoing> = (0..100).map(|_| snapshot()).collect();
        assert!(
            kept_bytes(&snapshots) <= BYTES_MAX,
            "{}",
            kept_bytes(&snapshots)
        );
        let newest = unread.pop().unwrap();
        assert_eq!(newest.read().unwrap().len(), 13 * MEBI);
        assert!(unread.remove(0).read().is_err(), "the oldest was dropped");
        drop(unread);
        snapshots.keep(Bytes::new());
        assert_eq!(kept_bytes(&snapshots), 0, "what was read is not kept");
    }

    #[test]
    fn the_newest_is_kept_even_if_it_is_longer_than_the_limit() {
        let snapshots = Snapshots::default();
        let text = snapshots.keep(vec![b'x'; BYTES_MAX + 1].into());
        let reader = Outgoing::whole(&text);
        drop(text);
        assert_eq!(reader.read().unwrap().len(), BYTES_MAX + 1);
    }
}
