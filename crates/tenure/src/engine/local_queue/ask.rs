//! Asks the client that may keep the lock to let it go.

use super::task::QueueTask;
use crate::engine::keep;
use crate::lease::LeaseId;

impl QueueTask {
    /// Perhaps nobody holds the lock: even a waiter that tries only once waits until its keeper had
    /// a moment to let it go.
    pub(super) fn ask_keeper(&mut self, holder: &LeaseId) {
        let is_new = self.asked.is_none_or(|(served, _)| served != self.served);
        if keep::ask(&self.core, &self.name, holder) && is_new {
            self.asked = Some((self.served, self.now() + keep::ASK_WAIT));
        }
    }
}
