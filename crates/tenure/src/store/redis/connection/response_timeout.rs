//! Closes a connection that owes replies to callers without a timer for too long, or whose server has
//! moved.
//!
//! A caller's own task may run on any executor, so it cannot rely on timers there. Instead, one
//! task on the engine watches each connection, and only while replies are awaited.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Connection;

/// How often to check while replies are awaited, and for a while after.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long to keep checking without callers: under load the next one comes soon and need not wake
/// the engine.
const LINGER: Duration = Duration::from_secs(1);

impl Connection {
    /// Closes it when it times out. `engine` is needed if the current runtime is not the engine.
    pub(in crate::store::redis) fn watch_replies(self: &Arc<Self>, engine: Option<&Handle>) {
        let request_sent = Arc::clone(&self.response_watch().request_sent);
        let (connection, closed) = (Arc::downgrade(self), self.closed.clone());
        let watching = async move {
            let watching = watch_loop(connection.clone(), request_sent);
            closed.run_until_cancelled(watching).await;
            // For example because the primary has moved: no reply is worth waiting for.
            if let Some(connection) = connection.upgrade() {
                connection.close();
            }
        };
        match engine {
            Some(engine) => drop(engine.spawn(watching)),
            None => drop(tokio::spawn(watching)),
        }
    }
}

/// Ends when the connection is to be closed, or is no longer used.
async fn watch_loop(connection: Weak<Connection>, request_sent: Arc<Notify>) {
    loop {
        request_sent.notified().await;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let Some(connection) = connection.upgrade() else {
                return;
            };
            let watch = connection.response_watch();
            let lasts = watch.silent_for(connection.clock().now());
            let awaited = watch.awaited.load(Ordering::Acquire) > 0;
            if awaited && lasts >= connection.target().response_timeout {
                return;
            }
            if !awaited && lasts >= LINGER {
                // Sequentially consistent, as in `expect_reply`: either this sees a request that was
                // sent just now, or that request sees that nothing watches.
                watch.watching.store(false, Ordering::SeqCst);
                if watch.awaited.load(Ordering::SeqCst) == 0 {
                    break;
                }
                watch.watching.store(true, Ordering::SeqCst);
            }
        }
    }
}
