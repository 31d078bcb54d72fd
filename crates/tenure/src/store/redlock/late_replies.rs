//! The last nodes' replies to a release, after the caller has its answer.
//!
//! Most of them have arrived by the next poll, so no task is woken for each: one task polls now and
//! then, as long as there are any.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::RedlockShared;
use super::node::lock;
use crate::moment::Moment;
use crate::pending_work::PendingOne;

/// How often to poll.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct LateReplies {
    replies: Mutex<Vec<LateReply>>,
    added: Notify,
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
        let mut replies = lock(&self.replies);
        replies.push(LateReply {
            work: Box::pin(work),
            pending,
            pending_until,
        });
        if replies.len() == 1 {
            self.added.notify_one();
        }
    }
}

/// Polls the late replies. Ends with the engine.
pub(super) async fn run(shared: Arc<RedlockShared>) {
    let late_replies = &shared.late_replies;
    loop {
        late_replies.added.notified().await;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let mut replies = std::mem::take(&mut *lock(&late_replies.replies));
            let mut context = Context::from_waker(Waker::noop());
            let now = shared.clock.now();
            replies.retain_mut(|reply| {
                if now >= reply.pending_until {
                    reply.pending = None;
                }
                reply.work.as_mut().poll(&mut context).is_pending()
            });
            let mut new = lock(&late_replies.replies);
            replies.append(&mut new);
            *new = replies;
            if new.is_empty() {
                break;
            }
        }
    }
}
