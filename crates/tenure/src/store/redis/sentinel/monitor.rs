//! Watching one sentinel: what it announces, and what it says when it is asked.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{PushInfo, PushKind};
use tokio::sync::mpsc;

use super::Sentinels;
use super::view::{self, View};
use crate::store::redis::connection::Connection;
use crate::store::redis::reconnect::Reconnector;

/// How often to ask although nothing was announced: an announcement can be lost.
const POLL: Duration = Duration::from_secs(1);
/// How long a sentinel may take to answer, connecting included.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// What sentinels announce when a master moves. The first comes earlier, but only from the one that
/// leads the failover. Both are only a reason to ask.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// Asks one sentinel again and again, for as long as the engine runs.
pub(super) async fn run(
    sentinels: Arc<Sentinels>,
    at: usize,
    reconnector: Reconnector,
    mut pushes: mpsc::UnboundedReceiver<PushInfo>,
) {
    // The connection on which announcements are heard.
    let mut subscribed_on = None;
    loop {
        let round = sentinels.round();
        let view = query(&sentinels, &reconnector, &mut subscribed_on).await;
        sentinels.learn(at, round, view);
        tokio::select! {
            () = sentinels.wakeups[at].notified() => {}
            () = announcement(&mut pushes) => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

async fn query(
    sentinels: &Sentinels,
    reconnector: &Reconnector,
    subscribed_on: &mut Option<u64>,
) -> View {
    let limit = reconnector.now() + ASK_LIMIT;
    let connection = match reconnector.connection(limit).await {
        Ok(connection) => connection,
        Err(failure) => return View::Silent(failure),
    };
    if *subscribed_on != Some(connection.id) {
        // Before it is asked: what it announces after its answer is not missed.
        subscribe(&connection, reconnector).await;
        *subscribed_on = Some(connection.id);
    }
    view::query(&connection, &sentinels.target().master, limit).await
}

/// A user who may not listen asks all the same.
async fn subscribe(connection: &Connection, reconnector: &Reconnector) {
    for channel in CHANNELS {
        let limit = reconnector.now() + ASK_LIMIT;
        let _ = connection.subscribe(channel, limit).await;
    }
}

/// Waits until there is reason to ask.
async fn announcement(pushes: &mut mpsc::UnboundedReceiver<PushInfo>) {
    loop {
        match pushes.recv().await {
            Some(push) if matches!(push.kind, PushKind::Message | PushKind::Disconnection) => {
                return;
            }
            Some(_) => {}
            // The link keeps a sender: this does not happen.
            None => std::future::pending().await,
        }
    }
}
