//! Releases whose last nodes have not replied when the caller has its answer.
//!
//! A shutdown waits for them, but not for a node that hangs. Most replies have come by the next look,
//! so there is no timer for each: one task looks now and then, as long as there are any.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::node::lock;
use super::release_round::ReleaseRound;
use super::{RedlockShared, SHUTDOWN_WAIT};
use crate::moment::{Clock, Moment};

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct LateReplies {
    releases: Mutex<Vec<LateRelease>>,
    added: Notify,
}

struct LateRelease {
    release: Arc<ReleaseRound>,
    /// How long a shutdown waits for it.
    until: Moment,
}

impl LateReplies {
    pub(super) fn add(&self, release: Arc<ReleaseRound>) {
        let mut releases = lock(&self.releases);
        releases.push(LateRelease {
            release,
            until: Clock::Boot.now() + SHUTDOWN_WAIT,
        });
        if releases.len() == 1 {
            self.added.notify_one();
        }
    }
}

/// Looks at the late releases. Ends with the engine.
pub(super) async fn run(shared: Arc<RedlockShared>) {
    let late_replies = &shared.late_replies;
    loop {
        late_replies.added.notified().await;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let now = shared.clock.now();
            let mut releases = lock(&late_replies.releases);
            releases.retain(|late| {
                if now >= late.until {
                    late.release.let_shutdown_pass();
                }
                now < late.until && !late.release.is_finished()
            });
            if releases.is_empty() {
                break;
            }
        }
    }
}
