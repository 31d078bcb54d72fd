//! Telling the nodes what this client knows of the others, and hearing what they know.

use std::sync::Arc;
use std::time::Duration;

use super::RedlockShared;
use super::fan_out::FanOut;
use super::node::RedlockNode;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::store::{BoxFuture, SILENCE_LIMIT};

/// How often to look whether a node is new, or has something to be told.
const LOOK: Duration = Duration::from_millis(250);

/// What was learned while connecting decides now, and the nodes are told.
///
/// # Errors
///
/// If other clients use longer leases than this one knows of.
pub(super) async fn conclude(shared: &Arc<RedlockShared>, limit: Moment) -> Result<()> {
    check_longest_ttl(shared)?;
    shared.sightings.settle();
    reassess(shared);
    tell(shared, limit).await;
    Ok(())
}

/// Asks all nodes when a new one has come, and tells them what they do not know. Ends with the
/// engine.
pub(super) async fn run(shared: Arc<RedlockShared>) {
    let mut warned = false;
    loop {
        let news = shared.sightings.news.notified();
        let _ = tokio::time::timeout(LOOK, news).await;
        let limit = shared.clock.now() + SILENCE_LIMIT;
        if shared.sightings.is_unsettled() {
            ask(&shared, limit).await;
            shared.sightings.settle();
            reassess(&shared);
            if !warned && let Err(error) = check_longest_ttl(&shared) {
                warned = true;
                tracing::warn!(%error, "redlock.longest_ttl: nodes that restart rest for longer");
            }
        }
        tell(&shared, limit).await;
    }
}

/// Hears what clients keep on each node. One that does not answer says what it said before.
async fn ask(shared: &Arc<RedlockShared>, limit: Moment) {
    each(shared, |node, voter| async move {
        if let Some(connection) = voter.store.live_connection()
            && let Ok(told) = voter.store.told(&connection, limit).await
        {
            voter.sightings.hear(node, told, voter.clock.now());
        }
    })
    .await;
}

/// Tells each node for how long the processes of all nodes run, unless it knows.
async fn tell(shared: &Arc<RedlockShared>, limit: Moment) {
    each(shared, |node, voter| async move {
        let sightings = &voter.sightings;
        let Some(ages) = sightings.to_keep(node, voter.clock.now()) else {
            return;
        };
        if let Some(connection) = voter.store.live_connection()
            && let Ok(()) = voter.store.keep_ages(&connection, &ages, limit).await
        {
            sightings.kept(node, ages, voter.clock.now());
        }
    })
    .await;
}

/// Does the same with all nodes at once.
async fn each<F>(shared: &Arc<RedlockShared>, work: impl Fn(usize, Arc<RedlockNode>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let nodes = shared.voters.iter().enumerate();
    let work = nodes.map(|(node, voter)| {
        let work = work(node, Arc::clone(voter));
        (node, Box::pin(work) as BoxFuture<'static, ()>)
    });
    let mut round = FanOut::begin(work.collect());
    while round.next().await.is_some() {}
}

fn reassess(shared: &RedlockShared) {
    shared.voters.iter().for_each(|voter| voter.reassess());
}

fn check_longest_ttl(shared: &RedlockShared) -> Result<()> {
    let own = shared.longest_ttl;
    let told = shared.sightings.longest_told();
    let Some((node, longest)) = told.filter(|(_, longest)| *longest > own) else {
        return Ok(());
    };
    let node = shared.voters[node].store.target();
    Err(Error::invalid_setting(
        "longest_ttl",
        format!("{own:?}"),
        &format!(
            "other clients use leases of `{longest:?}`, as `{node}` says: raise `longest_ttl` to \
             that in every client, or delete the key `tenure:longest-ttl` on every node when no \
             client uses such leases any more"
        ),
    ))
}
