//! Shutting a client down.

use std::sync::Arc;
use std::time::Duration;

use super::client_record;
use super::release::{self, ReleaseRequest, ReleaseResult};
use crate::core::Core;
use crate::lease::Lease;
use crate::seeded::{Bug, bug};
use crate::standing::LostReason;

impl Core {
    /// Releases all leases, ends all waiting, and returns the leases that could not be released.
    pub(crate) async fn shut_down(self: &Arc<Self>, limit: Duration) -> Vec<Lease> {
        self.close();
        if !bug(Bug::WaitersNotClosed) {
            self.queues.close_all();
        }
        self.observers.changed_all();
        let beliefs = self.watchdog.all();
        let mut left = Vec::new();
        let mut releases = tokio::task::JoinSet::new();
        let until = self.clock.now() + limit;
        let held = beliefs.into_iter().filter(|belief| {
            belief.mark_lost(LostReason::Shutdown);
            belief.end()
        });
        let kept = self.kept.take_all().into_iter();
        let kept = kept.filter(|_| !bug(Bug::KeptBeyondShutdown));
        let kept = kept.map(|kept| kept.belief);
        for belief in held.chain(kept) {
            self.untrack(&belief);
            let core = Arc::clone(self);
            // Counted as pending, in case the caller does not wait for the end of this.
            let pending = self.pending.begin();
            releases.spawn(async move {
                let _pending = pending;
                let request = ReleaseRequest::of(belief.held.clone(), until);
                let parted = release::release_until_gone(&core, &request).await;
                if belief.in_flight.is_some() {
                    drop(core.release_abandoned(belief.held.clone(), belief.in_flight));
                }
                let gone = matches!(parted, Ok(ReleaseResult::Answered(_) | ReleaseResult::Gone));
                (!gone).then(|| belief.lease())
            });
        }
        while let Some(lease) = releases.join_next().await {
            left.extend(lease.ok().flatten());
        }
        let time_left = until.saturating_since(self.clock.now());
        let write_record = async {
            self.pending.wait().await;
            // So that a program that ends now is no longer listed. The engine would also do it when
            // it stops, but the caller cannot wait for that.
            client_record::write_final(self).await;
            self.pending.wait().await;
        };
        let _ = tokio::time::timeout(time_left, write_record).await;
        left
    }
}
