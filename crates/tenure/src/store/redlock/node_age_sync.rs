//! Stores on the nodes what this client knows about the age of all nodes, and reads what other
//! clients have stored.

use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::fan_out::FanOut;
use super::node::RedlockNode;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::store::BoxFuture;

/// How often to check whether a node is new, or needs an update.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Decides with what was learned while connecting, and updates the nodes.
///
/// # Errors
///
/// If other clients use longer leases than this one knows of.
pub(super) async fn settle(shared: &Arc<RedlockShared>, limit: Moment) -> Result<()> {
    check_longest_ttl(shared)?;
    shared.ages.mark_settled();
    reassess(shared);
    publish(shared, limit).await;
    Ok(())
}

/// Asks all nodes when there is a new process, and updates them. Ends with the engine.
pub(super) async fn run(shared: Arc<RedlockShared>) {
    let mut warned = false;
    loop {
        let news = shared.ages.news.notified();
        let _ = tokio::time::timeout(CHECK_INTERVAL, news).await;
        let limit = shared.clock.now() + shared.response_timeout;
        if shared.ages.is_unsettled() {
            fetch(&shared, limit).await;
            shared.ages.mark_settled();
            reassess(&shared);
            if !warned && let Err(error) = check_longest_ttl(&shared) {
                warned = true;
                tracing::warn!(%error, "redlock.longest_ttl: restarted nodes rest longer");
            }
        }
        publish(&shared, limit).await;
    }
}

/// Reads what clients have stored on each node. For a node that does not reply, the previous
/// reading counts.
async fn fetch(shared: &Arc<RedlockShared>, limit: Moment) {
    for_each_node(shared, |index, node| async move {
        if let Some(connection) = node.store.live_connection()
            && let Ok(stored) = node.store.stored_node_info(&connection, limit).await
        {
            node.ages.note_stored(index, stored, node.clock.now());
        }
    })
    .await;
}

/// Stores the ages of all processes on each node, unless it has them.
async fn publish(shared: &Arc<RedlockShared>, limit: Moment) {
    for_each_node(shared, |index, node| async move {
        let known = &node.ages;
        let Some(ages) = known.ages_to_store(index, node.clock.now()) else {
            return;
        };
        if let Some(connection) = node.store.live_connection()
            && let Ok(()) = node.store.store_ages(&connection, &ages, limit).await
        {
            known.note_stored_ages(index, ages, node.clock.now());
        }
    })
    .await;
}

/// Runs the same on all nodes at once.
async fn for_each_node<F>(shared: &Arc<RedlockShared>, work: impl Fn(usize, Arc<RedlockNode>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let nodes = shared.nodes.iter().enumerate();
    let work = nodes.map(|(index, node)| {
        let work = work(index, Arc::clone(node));
        (index, Box::pin(work) as BoxFuture<'static, ()>)
    });
    let mut replies = FanOut::begin(work.collect());
    while replies.next().await.is_some() {}
}

fn reassess(shared: &RedlockShared) {
    shared.nodes.iter().for_each(|node| node.reassess());
}

fn check_longest_ttl(shared: &RedlockShared) -> Result<()> {
    let own = shared.longest_ttl;
    let told = shared.ages.longest_stored_ttl();
    let Some((node, longest)) = told.filter(|(_, longest)| *longest > own) else {
        return Ok(());
    };
    let node = shared.nodes[node].store.target();
    Err(Error::invalid_setting(
        "longest_ttl",
        format!("{own:?}"),
        &format!(
            "other clients use leases of `{longest:?}`, according to `{node}`: raise \
             `longest_ttl` to that in every client, or delete the key `tenure:longest-ttl` on \
             every node when no client uses such leases any more"
        ),
    ))
}
