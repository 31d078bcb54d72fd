//! Monitors one sentinel: its announcements, and its replies to queries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Sentinels;
use super::view::{self, View};
use crate::store::redis::connection::Connection;
use crate::store::redis::reconnect::Reconnector;
use crate::store::redis::wire::Push;

/// How often to query without an announcement, which can be lost.
const POLL: Duration = Duration::from_secs(1);
/// How long a sentinel may take to reply, connecting included.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// What sentinels announce when a primary moves. The first comes earlier, but only from the
/// sentinel that leads the failover. Both only trigger a query.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// Queries one sentinel again and again, as long as the engine runs.
pub(super) async fn run(
    sentinels: Arc<Sentinels>,
    at: usize,
    reconnector: Reconnector,
    mut pushes: mpsc::UnboundedReceiver<Push>,
) {
    // The connection that is subscribed to announcements.
    let mut subscribed_on = None;
    loop {
        let round = sentinels.round();
        let view = query(&sentinels, &reconnector, &mut subscribed_on).await;
        sentinels.note_view(at, round, view);
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
        // Before the query, so that no announcement after its reply is missed.
        subscribe(&connection, reconnector).await;
        *subscribed_on = Some(connection.id);
    }
    view::query(&connection, &sentinels.target().master, limit).await
}

/// A user that may not subscribe can still query.
async fn subscribe(connection: &Connection, reconnector: &Reconnector) {
    for channel in CHANNELS {
        let limit = reconnector.now() + ASK_LIMIT;
        let _ = connection.subscribe(channel, false, limit).await;
    }
}

/// Waits for a reason to query.
async fn announcement(pushes: &mut mpsc::UnboundedReceiver<Push>) {
    loop {
        match pushes.recv().await {
            Some(Push::Message { .. } | Push::Disconnected) => return,
            Some(_) => {}
            // The reconnector keeps a sender, so this does not happen.
            None => std::future::pending().await,
        }
    }
}
