//! Limits how many batches are in flight when many leases need something at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many batches may be in flight per node.
const BATCHES_MAX: usize = 8;

/// A limit per node: a node that does not reply must not delay requests to the others.
#[derive(Default)]
pub(super) struct BatchLimit(Mutex<HashMap<u64, Arc<Semaphore>>>);

impl BatchLimit {
    pub(super) async fn acquire(&self, node: u64) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let node = nodes.entry(node);
            Arc::clone(node.or_insert_with(|| Arc::new(Semaphore::new(BATCHES_MAX))))
        };
        semaphore.acquire_owned().await.ok()
    }
}
