//! Releases several leases, in one call to the store if possible.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::release::{self, ReleaseRequest};
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::Result;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::standing::Released;
use crate::store::LeaseSpec;

/// Begins to release these leases, and returns the results in their order. Continues in the
/// background if nobody waits for them.
pub(crate) fn begin(
    client: &Arc<ClientHandle>,
    requests: Vec<ReleaseRequest>,
) -> impl Future<Output = Vec<Result<Released>>> + Send + use<> {
    let core = Arc::clone(&client.core);
    let answer_by = core.clock.now() + core.settings.unreachable_after;
    // Counted before the caller continues, so that a wait for pending work does not miss it.
    let pending = core.pending.begin();
    for request in &requests {
        core.release_started(&request.lease.name);
    }
    let (reply, answer) = oneshot::channel();
    client.engine.spawn(async move {
        let _ = reply.send(release_all(&core, requests, answer_by).await);
        drop(pending);
    });
    async move { answer.await.unwrap_or_default() }
}

async fn release_all(
    core: &Arc<Core>,
    mut requests: Vec<ReleaseRequest>,
    answer_by: Moment,
) -> Vec<Result<Released>> {
    if bug(Bug::SeveralReleasesFirst) {
        requests.truncate(1);
    }
    let together = release_together(core, &mut requests, answer_by).await;
    // All begin before the first is waited for.
    let begin = |(request, released): (ReleaseRequest, Option<Released>)| {
        let (reply, answer) = oneshot::channel();
        match released {
            Some(released) => drop(reply.send(Ok(released))),
            None => drop(tokio::spawn(
                core.release_task(request, Some((reply, answer_by))),
            )),
        }
        answer
    };
    let answers: Vec<_> = requests.into_iter().zip(together).map(begin).collect();
    let mut results = Vec::with_capacity(answers.len());
    for answer in answers {
        results.push(answer.await.unwrap_or(Ok(Released::Unknown)));
    }
    results
}

/// Releases what the store can release in one call; `None` for each of the others.
async fn release_together(
    core: &Core,
    requests: &mut [ReleaseRequest],
    limit: Moment,
) -> Vec<Option<Released>> {
    let names: Vec<&LockName> = requests.iter().map(|it| &it.lease.name).collect();
    let is_usual = |it: &ReleaseRequest| it.dequeue.is_none() && it.in_flight.is_none();
    let fits = requests.len() > 1 && requests.iter().all(is_usual);
    if !fits || !core.store.acquires_together(&names) {
        return vec![None; requests.len()];
    }
    let leases: Vec<LeaseSpec> = requests.iter().map(|it| it.lease.clone()).collect();
    match core.store.release_several(&leases, limit).await {
        Ok(replies) => {
            let replies = leases.iter().zip(replies);
            let note = |(lease, reply): (&LeaseSpec, Option<_>)| {
                reply.map(|reply| release::note_released(core, lease, reply))
            };
            replies.map(note).collect()
        }
        Err(failure) => {
            for request in requests.iter_mut() {
                request.unknown = failure.in_flight.is_some();
            }
            vec![None; requests.len()]
        }
    }
}
