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
pub(super) async fn watch(
    sentinels: Arc<Sentinels>,
    at: usize,
    link: Reconnector,
    mut pushes: mpsc::UnboundedReceiver<PushInfo>,
) {
    // The connection on which announcements are heard.
    let mut hears = None;
    loop {
        let round = sentinels.round();
        let view = look(&sentinels, &link, &mut hears).await;
        sentinels.learn(at, round, view);
        tokio::select! {
            () = sentinels.bells[at].notified() => {}
            () = announcement(&mut pushes) => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

async fn look(sentinels: &Sentinels, link: &Reconnector, hears: &mut Option<u64>) -> View {
    let limit = link.now() + ASK_LIMIT;
    let connection = match link.connection(limit).await {
        Ok(connection) => connection,
        Err(failure) => return View::Silent(failure),
    };
    if *hears != Some(connection.id) {
        // Before it is asked: what it announces after its answer is not missed.
        listen(&connection, link).await;
        *hears = Some(connection.id);
    }
    view::ask(&connection, &sentinels.target().master, limit).await
}

/// A user who may not listen asks all the same.
async fn listen(connection: &Connection, link: &Reconnector) {
    for channel in CHANNELS {
        let limit = link.now() + ASK_LIMIT;
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
