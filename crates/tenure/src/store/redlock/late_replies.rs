//! What is still to be heard when an answer has been given: the last nodes' replies to a release.
//!
//! They have mostly come when somebody looks the next time, so nobody is woken for them: one task
//! looks now and then, for as long as there are any.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::RedlockShared;
use super::node::lock;
use crate::moment::Moment;
use crate::pending::PendingOne;

/// How often to look.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct LateReplies {
    ends: Mutex<Vec<LateReply>>,
    some: Notify,
}

struct LateReply {
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// A shutdown waits for it, but not for a node that hangs.
    pending: Option<PendingOne>,
    pending_until: Moment,
}

impl LateReplies {
    pub(super) fn add(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
        (pending, pending_until): (Option<PendingOne>, Moment),
    ) {
        let mut ends = lock(&self.ends);
        ends.push(LateReply {
            work: Box::pin(work),
            pending,
            pending_until,
        });
        if ends.len() == 1 {
            self.some.notify_one();
        }
    }
}

/// Hears what is left. Ends with the engine.
pub(super) async fn run(shared: Arc<RedlockShared>) {
    let loose_ends = &shared.loose_ends;
    loop {
        loose_ends.some.notified().await;
        loop {
            tokio::time::sleep(LOOK).await;
            let mut ends = std::mem::take(&mut *lock(&loose_ends.ends));
            let mut context = Context::from_waker(Waker::noop());
            let now = shared.clock.now();
            ends.retain_mut(|end| {
                if now >= end.pending_until {
                    end.pending = None;
                }
                end.work.as_mut().poll(&mut context).is_pending()
            });
            let mut new = lock(&loose_ends.ends);
            ends.append(&mut new);
            *new = ends;
            if new.is_empty() {
                break;
            }
        }
    }
}
